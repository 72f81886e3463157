// The frame of every page: theme, rail, keys, ages, search. Pages add modules of their own.
import { theme } from "./frame/theme.js";
import { keys } from "./frame/keys.js";
import { search } from "./frame/search.js";
import { ages } from "./frame/ages.js";
import { polls } from "./frame/polls.js";

theme();
keys();
search();
ages();
polls();
// Of many servers in the rail the present one is in sight.
document.querySelector("#rail-servers [aria-current]")?.scrollIntoView({ block: "nearest" });
