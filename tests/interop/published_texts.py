"""The texts of make_published.py and published_folders_test.py."""

NEW_TOKENS = 12
BLOCK = 16
# Like SNLI's hypotheses.
TEXTS = ["A person is outdoors, on a horse.", "Children smiling and waving at camera", "The boy skates down the sidewalk.", "Two women are embracing.",
         "The men are fighting outside a deli.", "A woman and a child hold hands.", "The couple are inside the house.", "People speak.", "corn",
         "Nobody has food for the citizens of the old town on the river.", "we know it", "The school is having a special event."]
PROMPTS = ["What is the", "Speak, citizen: </s> and <pad> what?", "corn"]
LINES = ["First Citizen: speak, speak.", "", "All: resolved. resolved.", "We know it, we know it; and what you are.", "Let us kill him, and we will have corn at our own price.",
         "Is it a verdict?", "No more talking on it; let it be done: away, away!", "One word, good citizens."] * 8
PAIRS = [{"source": text, "target": " ".join(reversed(text.split()))} for text in TEXTS[:8]]
REVIEWS = [("I %s the product number %d" % ("love" if i % 2 == 0 else "hate", i % 20), "positive" if i % 2 == 0 else "negative") for i in range(80)]
