"""Makes the reference of the tokenizer test: python3 make.py [FOLDER OF GPT-2'S FILES]

Needs the Python package tokenizers (made with 0.23.3) and the Debian package bible-kjv. Writes, into the folder of this
script:
  mixed.txt             text in many scripts, with everything the pre-tokenization rule tells apart
  kjv.txt               the head of the King James Bible (public domain)
  tokenizer.json        a byte-level encoding trained on both, 1,200 tokens
  vocab.json merges.txt the same encoding in the older form
  mixed.ids kjv.ids     its tokens
  gpt2-mixed.ids gpt2-kjv.ids  the tokens of GPT-2's own encoding, when its files are given
"""

import os
import random
import subprocess
import sys

from tokenizers import Tokenizer, models, pre_tokenizers, decoders, trainers

HERE = os.path.dirname(os.path.abspath(__file__))

SENTENCES = [
    "The quick brown fox doesn't jump; it's they who've said I'll, we're, he'd and I'm, 'twas SHE'S and it'S.",
    "Größe, naïve façade, Ångström, señor, İstanbul, ĳ, ﬁnal, Ǆ.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία.",
    "我能吞下玻璃而不伤身体。いろはにほへと ちりぬるを。다람쥐 헌 쳇바퀴에 타고파.",
    "نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر",
    "דג סקרן שט בים מאוכזב ולפתע מצא חברה",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश करने वाले",
    "👩‍👩‍👧‍👦 🇨🇭 ☃️ 👍🏽 → ∑ ∀x∈ℝ: ⌈x⌉ = −⌊−x⌋ © ™ ½ ² Ⅷ ① ٣٤٥ १२३ 三",
    "pi is 3.14159265, 1,000,000.00 or 1e-9; 0x7fff; x2 y3z; (a+b)^2 != a^2+b^2; $5 £6 €7 #8 @9",
    "int main(void)\n{\n\tfor (int i = 0; i < 10; i++)\n\t\tprintf(\"%d\\n\", i);\n    return 0;\n}\n",
    "a  b   c    d \n e\n\n f\n\n\n  g\t\th \t i\r\nj\r\n\r\n  k   ",
    "non\u00a0breaking\u2003em\u3000wide\u200bzero\u180emongolian\u0085next\u2028line\u2029paragraph\ufeffmark\x0bv\x0cf\x1cs",
    "''' 's's 'll'll 're 'r 'l 've 'v 'S ’s ‘t don''t \" '",
    "e\u0301 o\u0308\u0323 \u0301alone 한글 ﷽ \U00010348 \U0001D54F \U000E0001 \u0000nul \x7f",
    "<|endoftext|> [MASK] <s> </s>",
]


def mixed_text():
    rng = random.Random(1)
    parts = list(SENTENCES)
    pool = list("".join(SENTENCES)) + list(" \n\t'.0aΔж中👍") * 12
    for length in (50, 400, 1500):
        parts.append("".join(rng.choice(pool) for _ in range(length)))
    return "\n".join(parts) + "\n   "


def write(name, text):
    with open(os.path.join(HERE, name), "w", encoding="utf-8", newline="") as file:
        file.write(text)


def write_ids(name, tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    write(name, "".join(f"{i}\n" for i in ids))


def without_added(tokenizer_json):
    """The same encoding without added tokens: what Trireme makes of ordinary text."""
    import json

    data = json.loads(tokenizer_json)
    data["added_tokens"] = []
    return Tokenizer.from_str(json.dumps(data))


def main():
    mixed = mixed_text()
    bible = subprocess.run(["bible", "-f", "gen1:1-rev22:21"], capture_output=True, text=True, check=True).stdout
    kjv = bible[: bible.index("\n", 30000) + 1]
    write("mixed.txt", mixed)
    write("kjv.txt", kjv)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1200,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator([bible, mixed * 40], trainer)
    tokenizer.save(os.path.join(HERE, "tokenizer.json"), pretty=False)
    tokenizer.model.save(HERE)
    plain = without_added(tokenizer.to_str())
    write_ids("mixed.ids", plain, mixed)
    write_ids("kjv.ids", plain, kjv)
    if len(sys.argv) > 1:
        gpt2 = Tokenizer(models.BPE.from_file(f"{sys.argv[1]}/encoder.json", f"{sys.argv[1]}/vocab.bpe"))
        gpt2.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        gpt2.decoder = decoders.ByteLevel()
        write_ids("gpt2-mixed.ids", gpt2, mixed)
        write_ids("gpt2-kjv.ids", gpt2, kjv)


main()
