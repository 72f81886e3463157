"""What the policies page says about each field: its title, what it decides, and each of its values in a sentence."""

from __future__ import annotations

# in the order of the page
TITLES = {
    "prefill_order": "Prefill order",
    "rotation_start": "Rotation starts",
    "phase": "Phase",
    "barrier_join": "Cohort closes",
    "barrier_join_window_ms": "Window to join",
    "barrier_max_hold_ms": "Longest hold",
    "barrier_max_generation_tokens": "Tokens at a stretch",
    "prefill_chunk": "Prefill chunk",
    "decode_share": "Share of generation",
    "speculative": "Speculative decoding",
    "speculative_n_max": "Drafted at most",
    "speculative_n_min": "Drafted at least",
    "speculative_ngram_size": "Size of n-grams",
}
# Fields that matter only under a value of another field.
DEPENDS_ON = {
    "rotation_start": ("prefill_order", "rotating"),
    "barrier_join": ("phase", "barrier"),
    "barrier_join_window_ms": ("barrier_join", "window"),
    "barrier_max_hold_ms": ("phase", "barrier"),
    "barrier_max_generation_tokens": ("phase", "barrier"),
    "speculative_ngram_size": ("speculative", "ngram"),
}
#: field -> another that must not be off
DEPENDS_ON_ANY = {"speculative_n_max": "speculative", "speculative_n_min": "speculative"}
SENTENCES = {
    "prefill_order": "Whose prompt enters the next batch first. Drawn: prompts of 20, 20 and 3 tokens in batches of 8; "
    "each column is one batch.",
    "rotation_start": "Where the next rotating pass begins. It counts under rotating alone.",
    "phase": "Whether prompts and generation may share a batch. Drawn: three slots over time; hatched is held.",
    "barrier_join": "Until when a cohort takes arrivals in. Drawn: prompts of 40 and 3 tokens, and one of 3 that comes after the "
    "first batch.",
    "barrier_join_window_ms": "How long after its beginning a cohort takes arrivals in. It closes earlier when all its prompts "
    "are done.",
    "barrier_max_hold_ms": "How long a finished prompt may be held by its cohort. Then the finished ones generate, and the "
    "others join the next cohort with what they have.",
    "barrier_max_generation_tokens": "How many tokens each member generates before prompts that wait get the next phase. "
    "Members that are not done go on after them.",
    "prefill_chunk": "The most prompt tokens in a batch, of all slots together. Smaller chunks shorten stalls, and cost "
    "throughput.",
    "decode_share": "The share of the time that generating slots keep while prompts come in. Prompts wait until generation has "
    "had it.",
    "speculative": "Where drafted tokens come from. A batch without prompts checks them beside the next token; what comes out is "
    "the same.",
    "speculative_n_max": "The most tokens drafted for a slot in one batch. Fewer are drafted where they were seldom right.",
    "speculative_n_min": "A shorter draft is dropped.",
    "speculative_ngram_size": "How many tokens in a row must have occurred before for what followed them to be drafted.",
}
DRAWN = {
    "prefill_chunk": "Drawn: the same prompts in chunks of 5.",
    "barrier_max_generation_tokens": "Drawn: 2 at a stretch, and a prompt on a third slot.",
    "decode_share": "Drawn: 0.5, where a batch with prompt tokens takes three times as long.",
}
OPTION_SENTENCES = {
    "prefill_order=physical": "Lowest slot first. A long prompt on slot 0 keeps the others out.",
    "prefill_order=rotating": "Starts after a slot served in the batch before. Nobody is passed over for more than one round.",
    "prefill_order=fair": "Every waiting slot gets an equal share of each batch.",
    "prefill_order=shortest_first": "Fewest tokens left first. A long prompt is let in after it was passed over often enough.",
    "rotation_start=after_first": "After the first slot of the batch before: each waiting slot leads a batch once a round.",
    "rotation_start=after_last": "After the last one, which can squeeze a slot that keeps coming last.",
    "phase=continuous": "Generation goes on beside prompts, one token a batch.",
    "phase=barrier": "All prompts of a cohort first, then all generate together.",
    "barrier_join=first_completion": "With its first finished prompt. Who comes right behind it waits for the next cohort.",
    "speculative=off": "One token a batch for each slot.",
    "speculative=ngram": "From what followed the last tokens earlier in the slot's own text.",
    "speculative=draft": "From a smaller model that runs beside.",
    "barrier_join=window": "When a time has passed, so a short prompt does not close it.",
}
UNITS = {"_ms": "ms", "_tokens": "tokens", "_chunk": "tokens", "_share": "of the time"}


def unit(name: str) -> str:
    return next((said for end, said in UNITS.items() if name.endswith(end)), "")
