"""Story generator: coherent little stories, plain or as ChatML conversations.

A story is a plot (a function) told about a cast.  The cast, the things and
their colours are fixed in slots before the first sentence, so that what is
said once stays true to the end.  documents() is deterministic in its seed.
"""

import random
import re
from collections.abc import Callable, Iterator

import words as w
from chat import conversation
from words import fill, polish

SPEECH = {
    "said": ("said",),
    "replied": ("said", "said", "answered", "replied"),
    "asked": ("asked", "asked", "asked", "said"),
    "cried": ("cried", "called", "shouted"),
    "whispered": ("whispered", "said softly", "said in a small voice"),
    "smiled": ("smiled", "laughed", "grinned"),
    "soon": ("soon", "before long", "after a while", "in a little while"),
    "oneday": ("one [sunny|windy|warm|cool|grey|bright|quiet|clear|fine|fresh] [morning|afternoon|day]", "one [morning|day|afternoon]",
               "early one [morning|spring morning|summer morning|autumn morning]", "one [spring|summer|autumn] [morning|day|afternoon]",
               "on a [quiet|sunny|busy|windy] [Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday]"),
    "glad": ("glad", "happy", "pleased", "full of joy"),
    "sad": ("sad", "unhappy"),
}

WEATHER = (
    "The sky was [blue|clear|bright] and [a soft wind blew|the grass was [still wet|warm|green]|bees hummed in the flowers].",
    "[White|Small|Fluffy] clouds [drifted|sailed|floated] [over the hills|over the trees|across the sky].",
    "The [morning|air] was [cool|fresh|warm] and smelled of [grass|flowers|rain|pine|wet earth].",
    "[Somewhere|Far off,|High up,] a {bird} was calling[| in the {tree}| from the {tree}| to its mate].",
    "[The sun was warm|Sunlight fell] on the [{flowers}|old wall|path|roofs|stones].",
    "A {bird} [hopped|fluttered] [along the fence|over the path|through the leaves].",
    "[Two|Three|Four|Five|A few] [ducks|geese|swallows|butterflies|pigeons|dragonflies] [flew past|crossed the sky|flew over the {tree}|circled above {him}].",
    "[A snail|A beetle|A frog|A ladybird|A lizard] [sat|rested|slept] [on a warm stone|on a leaf|beside the path|under the {tree}|among the {flowers}].",
    "The {flowers} [nodded in the wind|smelled sweet|were [just opening|wet with dew|in bloom]], and [the {tree} rustled|a {bird} called|the stream murmured|somewhere a door banged].",
    "{h} [hummed a [merry|little|slow|new] tune|looked [up at the sky|around|at the {flowers}]|listened to the [{bird}|wind|bees]|took a deep breath] and [felt the sun on {his} face|smiled|was in a good mood|walked a little faster].",
)


class Story:
    """What is being told: the slots (the state) and the text so far."""

    def __init__(self, rng: random.Random, short: bool):
        self.rng = rng
        self.short = short
        self.slots: dict = dict(SPEECH)
        self.paragraphs: list[list[str]] = [[]]
        self.theme = ""
        self.topic = ""
        self.lesson = ""
        self.title: tuple[str, ...] = ()
        self.facts: list[tuple[str, str]] = []
        self.unknown = {"f", "e"}  # characters not yet introduced
        self.object = ""
        self.kind = ""
        self.size = ""
        self.named = True
        self.animal = False

    def __call__(self, *options: str) -> None:
        """Adds one of the options."""
        option = options[int(self.rng.random() * len(options))]
        line = self.introduce(fill(option, self.slots, self.rng))
        if line:
            at = 1 if line[0] == '"' else 0
            self.paragraphs[-1].append(line[:at] + line[at].upper() + line[at + 1:])

    def introduce(self, line: str) -> str:
        """Says who friend and elder are where the line names them first."""
        for key in ("f", "e"):
            name = self.slots[key]
            if key in self.unknown and name in line and re.search(rf"\b{name}\b", line):
                self.unknown.remove(key)
                known = f"{self.slots['his']} friend {name}" if key == "f" else self.slots["ea"]
                if key == "f" and ("friend" in line or self.slots["fa"] in line) or known in line:
                    continue
                line = re.sub(rf"\b{name}\b", known, line, count=1)
        return line

    def o(self, *options: str) -> None:
        """Adds one of the options, or nothing; a short story skips it."""
        if not self.short and self.rng.random() < 0.85:
            self(*options)

    def p(self) -> None:
        if self.paragraphs[-1] and not self.short:
            self.paragraphs.append([])

    def pick(self, options):
        return options[int(self.rng.random() * len(options))]

    def put(self, **slots: str) -> None:
        self.slots.update(slots)

    def text(self) -> str:
        return polish("\n\n".join(" ".join(lines) for lines in self.paragraphs if lines))


def person(s: Story, key: str, she: bool, name: str, noun: str, vocative: str, hands: str) -> None:
    """Sets the slots of one character; key "" is the hero."""
    he, him, his = ("she", "her", "her") if she else ("he", "him", "his")
    s.put(**{key + "he": he, key + "him": him, key + "his": his, key + "himself": him + "self",
             (key or "h"): name, (key or "h") + "k": "the " + noun, (key or "h") + "v": vocative,
             key + "hands": hands, (key or "h") + "noun": noun})


def cast(s: Story) -> None:
    """Chooses hero, friend and elder of one world: people or animals."""
    rng = s.rng
    animal = rng.random() < 0.55
    she = rng.random() < 0.5
    trait = s.pick(tuple(w.TRAITS))
    s.animal = animal
    if animal:
        kind = s.pick(w.ANIMALS)
        s.kind = kind
        s.named = rng.random() < 0.85
        name = s.pick(w.PET_SHE if she else w.PET_HE) if s.named else "the " + kind
        size = s.pick(("little ", "small ", "young ", ""))
        person(s, "", she, name, size + kind, name if s.named else "little " + kind, "paws")
        noun = kind
        friend_kind = s.pick([k for k in w.ANIMALS if k != kind])
        elder_kind = s.pick([k for k in w.OLD_ANIMALS if k not in (kind, friend_kind)])
    else:
        s.kind = noun = "girl" if she else "boy"
        size = s.pick(("", "", "little ", "young "))
        name = s.pick(w.GIRLS if she else w.BOYS)
        person(s, "", she, name, noun, name, "hands")
    call = s.pick(("named", "named", "called"))
    s.size = size
    a = f"a [{trait}|{trait}|] {size}{noun}" + (f" {call} {name}" if s.named else "")
    s.put(a=a, trait=trait, traitline=w.TRAITS[trait], likes=s.pick(w.LIKES))
    friend_she = (not she) if rng.random() < 0.93 else she
    elder_she = (not she) if rng.random() < 0.85 else she
    if animal:
        fname = s.pick([n for n in (w.PET_SHE if friend_she else w.PET_HE) if n != name])
        person(s, "f", friend_she, fname, friend_kind, fname, "paws")
        s.put(fa=f"a {friend_kind} named {fname}", fnoun=friend_kind)
        ename = s.pick(w.OLD_PETS_SHE if elder_she else w.OLD_PETS_HE)
        person(s, "e", elder_she, ename, f"old {elder_kind}", ename, "paws")
        s.put(ea=f"{ename} the {elder_kind}", home=fill(s.pick(w.HOMES_ANIMAL), s.slots, rng))
    else:
        fname = s.pick([n for n in (w.GIRLS if friend_she else w.BOYS) if n != name])
        fnoun = "girl" if friend_she else "boy"
        person(s, "f", friend_she, fname, fnoun, fname, "hands")
        s.put(fa=f"a {fnoun} named {fname}", fnoun=fnoun)
        ename = s.pick(w.OLD_SHE if elder_she else w.OLD_HE)
        job = s.pick(("baker", "gardener", "carpenter", "tailor", "farmer", "teacher", "clock maker"))
        person(s, "e", elder_she, ename, f"old {job}", ename, "hands")
        s.put(ea=f"{ename} the {job}", home=fill(s.pick(w.HOMES_CHILD), s.slots, rng))
    areas = ("forest", "valley", "meadow", "wood") if animal else ("village", "town")
    s.put(town=next((area for area in areas if area in s.slots["home"]), areas[0]), bird=s.pick(w.BIRDS), tree=s.pick(w.TREES), flowers=s.pick(w.FLOWERS), c=s.pick(w.COLOURS),
          parent=s.pick(("mother", "father", "mother", "grandmother")))
    parent_she = s.slots["parent"] != "father"
    s.put(phe="she" if parent_she else "he", phim="her" if parent_she else "him",
          phis="her" if parent_she else "his")
    if s.named:
        s.facts.append((f"What was the name of the {noun}?", f"The {noun} was [named|called] {name}."))


def opening(s: Story) -> None:
    s("Once upon a time, there was {a} who lived {home}.", "Once upon a time, {a} lived {home}.",
      "There was once {a} who lived {home}.", "{home} lived {a}.", "{home} there lived {a}.",
      "{a} lived {home}.", "Far away, [past the hills|beyond the woods|behind the mountains], {a} lived {home}.",
      "Long ago, {home}, there lived {a}.", "This is the story of {a} who lived {home}.",
      "Not so long ago, {a} lived {home}.", "Not far from here, {a} lived {home}.")
    s.o("{traitline}", "{traitline}", "{He} loved {likes}.", "Most of all, {he} loved {likes}.",
        "{He} liked {likes}, and {he} [was good at it|did it every day|never got tired of it].",
        "Every day {he} found time {likes}.")


def weather(s: Story) -> None:
    s.o(*WEATHER)


def goodnight(s: Story) -> None:
    s.o("That night {h} [slept well|fell asleep with a smile|slept deeply] and dreamed of {dream}.",
        "[Later that evening|At bedtime|Before {he} slept], {h} [looked out of the window|put {his} head on the pillow|yawned] and [smiled|counted the stars|hummed a song|closed {his} eyes].",
        "When the [moon|first star] came up, {h} was [already asleep|fast asleep], dreaming of {dream}.",
        "That evening {h} told {his} {parent} [all about it|the whole story] before going to sleep.",
        "And when {h} went to bed, {he} was still smiling.", "")


def thing(s: Story, choices=w.LOSABLE) -> str:
    """Fixes the thing the story is about and its colour."""
    obj = s.pick(choices)
    colours = w.COLOURS
    if obj in ("key", "bell", "spoon", "whistle", "flute", "coin"):
        colours = ("silver", "golden", "little", "shiny", "old", "small")
    s.put(o=obj, c=s.pick(colours), dream=f"the {{c}} {obj}")
    s.object = obj
    if s.slots["c"] in w.COLOURS:
        s.facts.append((f"What colour was the {obj}?", f"The {obj} was {s.slots['c']}."))
    return obj


def lost_thing(s: Story) -> None:
    thing(s)
    spot, why, where = s.pick((
        ("the bridge", "to watch the fish", "in the grass beside the bridge"),
        ("the old well", "to hear {his} own voice come back", "on the edge of the old well"),
        ("the big {tree}", "to rest in the shade", "between the roots of the {tree}"),
        ("the pond", "to look at the ducks", "in the reeds by the pond"),
        ("the mill", "to watch the wheel turn", "on a flat stone near the mill"),
        ("the berry bushes", "to eat a few berries", "under the berry bushes"),
        ("the gate", "to talk to a snail", "on top of the gate post"),
        ("the stone wall", "to pick some {flowers}", "behind the stone wall"),
        ("the hay barn", "to jump in the hay", "deep in the hay"),
    ))
    s.put(spot=spot, why=why, where=where, giver=s.pick(("grandmother", "grandfather", "aunt", "uncle", "sister", "brother")))
    s.theme, s.topic, s.lesson = "losing something", "who loses a {c} {o}", "Go back and think before you give up."
    s.title = ("The Lost {O}", "Where Is the {O}?", "{H} and the {c} {o}", "The {c} {o}")
    s.facts.append(("Where was the {o} in the end?", "The {o} was {where}."))
    opening(s)
    s("{His} [favourite|dearest|best] thing was a {c} {o}[| that {his} {giver} had made| from {his} {giver}].",
      "{He} had a {c} {o}, a gift from {his} {giver}, and {he} [took it everywhere|loved it very much].",
      "{His} {giver} had given {him} a {c} {o}, and {he} carried it [everywhere|all day long].")
    s.p()
    s("{oneday}, {h} went for a walk and stopped at {spot} {why}.",
      "{oneday}, {h} took the {o} along on a walk. {He} stopped at {spot} {why}.",
      "{oneday}, on the way to {his} {giver}, {h} stopped at {spot} {why}.")
    weather(s)
    s("But when {he} came home, the {c} {o} was gone!", "Back home, {he} [reached for|looked for] the {o}. It was gone!",
      "When {he} got home, {he} [felt|saw] that something was missing. Where was the {c} {o}?")
    s.o("{h} felt [a lump in {his} throat|{his} heart sink|hot tears in {his} eyes].", "{h} was so {sad} that {he} could not eat {his} supper.",
        '"Oh no!" {cried} {h}. "My {o}!"', '"I had it this morning," {he} {whispered}.')
    s.p()
    s.o("{He} looked under [the bed|the table|the stairs], but there was only [dust|an old sock|a sleepy spider].",
        "{He} looked [in every corner|in every basket|behind every door], but [it was not there|{he} found nothing].",
        "First {he} asked the {bird}, but the {bird} had seen nothing[| at all].")
    s("Then {he} met {fa}. \"Why do you look so sad?\" {asked} {f}.",
      '{f}, {his} friend, came by. "What is the matter?" {fhe} {asked}.',
      'At the door stood {f}, {his} friend. "Can I help you?" {asked} {f}.')
    s('"I lost my {c} {o}," {said} {h}. "I have looked everywhere."', '"My {o} is gone, and I do not know where to look," {said} {h}.')
    s('"Think," said {f}. "Where did you stop today?"', '"Close your eyes," said {f}. "Where were you when you last had it?"',
      '"Let us walk back the way you came," said {f}. "Where did you rest?"')
    s('{h} thought [hard|for a moment|and thought]. "{spot}!" {he} {cried}. "I stopped there!"',
      '"I stopped at {spot}," {h} said slowly. "I put the {o} down there!"')
    s.p()
    s("They [ran|hurried|walked quickly] back [together|side by side], and there, {where}, lay the {c} {o}.",
      "The two friends [ran|hurried] all the way. And there it was, {where}: the {c} {o}!",
      "Together they went back to look. Something {c} was shining {where}. It was the {o}!" if s.slots["c"] in w.COLOURS else
      "Together they went back to look. And there, {where}, was the {o}!")
    s.o("{h} [hugged|pressed] the {o} to {his} chest.", '"You are the best friend in the world," {said} {h}.',
        "{h} [jumped|danced] for joy, and {f} [danced|jumped] too.", '"Thank you, {fv}!" {cried} {h}.')
    s("From then on, {h} always [looked back before leaving a place|checked {his} things before going home].",
      "After that day, {h} took better care of {his} things, and {he} never forgot how {f} had helped.",
      "And {h} learned that [a calm head finds more than a worried one|two friends find more than one].",
      "That day {h} learned to stop and think [before giving up|when something goes wrong].")
    goodnight(s)


def new_friend(s: Story) -> None:
    s.put(game=s.pick(("hide and seek", "catch", "a jumping game", "a guessing game", "pirates", "a counting game")),
          gift=s.pick(("a smooth stone", "a ripe pear", "a blue feather", "a daisy chain", "half of {his} bread", "a shiny shell")),
          spot=s.pick(("the swing", "the pond", "the old fence", "the {tree}", "the hill", "the stream")), dream="games and friends")
    s.theme, s.topic, s.lesson = "making a friend", "who makes a new friend", "A small kind word can start a friendship."
    s.title = ("A New Friend", "{H} and {F}", "The New Friend", "{H} Makes a Friend")
    s.facts.append(("Who became the new friend?", "{F} became the new friend."))
    opening(s)
    s("But {he} had nobody to play with.", "But {he} was often [lonely|alone].", "Still, {he} wished for [a friend|somebody to play with].",
      "Only one thing was missing: a friend.")
    s.o("Every day {he} [sat|played] by {spot}, all alone.", "{He} played {game} with {his} own shadow, but the shadow never [laughed|won].",
        '"I wish I had a friend," {he} told {his} {parent}. "One will come," said {his} {parent}.')
    s.p()
    s("{oneday}, {he} saw {fa} sitting by {spot}.", "{oneday}, someone new came to the {town}. It was {fa}.",
      "{oneday}, {h} heard someone crying by {spot}. It was {fa}.", "{oneday}, {fa} moved in next door.")
    weather(s)
    s("{h} wanted to say hello, but {his} heart [beat fast|was thumping].", "{h} did not know what to say. What if {f} did not like {him}?",
      "At first {h} only [watched|looked] from [behind a bush|behind the {tree}|far away].")
    s.o("{He} took one step, and then {he} took one step back.", "{He} opened {his} mouth, but no word came out.",
        "\"What if {fhe} laughs at me?\" {he} thought.")
    s.p()
    s("Then {he} had an idea. {He} picked up {gift} and held it out. \"This is for you,\" {he} {whispered}.",
      "So {he} took {gift}, walked up slowly and said, \"Would you like this?\"",
      "At last {he} took a deep breath. \"Hello, I am {n}. I brought you {gift},\" {he} said.")
    s('{f} looked up and smiled. "Thank you! I am {f}. I am new here and I do not know anyone."',
      '"For me?" {asked} {f}. {Fhis} eyes [shone|were bright]. "Nobody has been so kind to me here."',
      '{f} took it with both {fhands}. "How nice!" {fhe} said. "I was feeling lonely too."')
    s('"Do you want to play {game}?" {asked} {h}.', '"Shall we play {game}?" {h} {asked}.', '"I know how to play {game}," said {h}. "I can show you."')
    s("They played [until the sun went down|all afternoon|until supper time], and they laughed [so much that their sides hurt|the whole time].",
      "{f} nodded, and they played {game} [until it was dark|all day long].",
      "So they played by {spot} [until the first stars came out|until their mothers called them home].")
    s.p()
    s.o('"Will you come again tomorrow?" {asked} {f}. "Yes, and the day after that!" {replied} {h}.',
        '"See you tomorrow!" {cried} {f}, waving both {fhands}.', "The next day they met again, and the day after that too.")
    s("{h} was not lonely any more. It had only taken [one kind word|a little courage|one small gift].",
      "From that day on, {h} and {f} were [the best of friends|always together].",
      "And {h} learned that [the first hello is the hardest|a small gift can open a big door|a friend may be just as shy as you are].",
      "Now there were two of them by {spot}, and the days were never [too long|dull] again.")
    goodnight(s)


def sharing(s: Story) -> None:
    s.put(fruit=s.pick(w.FRUITS), n1=s.pick(("four", "six", "eight", "ten")), box=s.pick(("basket", "bag", "bowl", "bucket")), dream="a long table full of friends")
    s.theme, s.topic, s.lesson = "sharing", "who learns to share {fruit}", "Things taste better when you share them."
    s.title = ("{H} Learns to Share", "The {Box} of {Fruit}", "Enough for Two", "Sharing")
    s.facts.append(("What was in the {box}?", "There were {n1} {fruit} in the {box}."))
    opening(s)
    s("{oneday}, {h} found {n1} [ripe|sweet|fat] {fruit} [under a bush|at the side of the road|near the {tree}] and put them in {his} {box}.",
      "{oneday}, {his} {parent} gave {him} a {box} with {n1} [ripe|sweet|fat] {fruit} in it.",
      "{oneday}, {h} picked {n1} {fruit} and put them in a {box}.")
    s.o('"These are all for me," {he} [thought|said to {himself}].', "{He} had never seen such [fine|big|lovely] {fruit}.",
        "The {fruit} smelled of [summer|sunshine|honey].")
    s.p()
    s("On the way home {he} met {fa}. \"Those look good,\" said {f}. \"May I have one?\"",
      "{soon} {f}, {his} friend, came along. \"I am so hungry,\" said {f}. \"Could I have one?\"",
      "{f}, who lived next door, looked into the {box}. \"Oh! May I try one?\" {fhe} {asked}.")
    s('"No," said {h}. "They are mine." And {he} [held the {box} tight|hid the {box} behind {his} back].',
      '"No, I want to keep them all," said {h}, and {he} walked away.',
      "{h} shook {his} head. \"I do not have enough,\" {he} said, but that was not true.")
    s("{f} [said nothing and went away|looked at the ground|walked away slowly].", "{f} looked sad and went home.")
    s.p()
    s("{h} sat down under the {tree} and ate one. It did not taste as good as {he} had hoped.",
      "{h} ate one, and then another. But they tasted of nothing, because {he} [was all alone|kept thinking of {f}].",
      "At home {h} ate until {his} tummy hurt. Still, {he} was not happy.")
    s.o("{He} thought of {fhis} sad eyes.", "The {town} was very quiet. Nobody came to play.", '"Why am I not happy?" {he} [wondered|asked {himself}].',
        "{He} remembered how {f} had once [shared {fhis} umbrella|given {him} half a bun|helped {him} carry wood].")
    s("Then {he} [jumped up|stood up], took the {box} and ran to find {f}.", "At last {he} knew what to do. {He} carried the {box} to {f}'s door and knocked.",
      "So {he} took what was left and went to look for {f}.")
    s('"I am sorry," {said} {h}. "[Half of them are for you|Please take some|Let us eat them together]."',
      '"I was [wrong|selfish]," {h} {said}. "Will you eat the rest with me?"')
    s.p()
    s("They sat [side by side|in the sun|on the step] and ate the {fruit} together, and each one tasted [like honey|better than the last|wonderful].",
      "{f} smiled, and they sat down and shared the {fruit} until the {box} was empty.",
      "They ate and talked, and soon [they were both laughing|{f} told a joke and they both laughed].")
    s.o("{f} went inside and came back with [warm bread|a jug of milk|some cheese]. \"Now I can share too,\" {fhe} said.",
        '"These are the best {fruit} in the world," {said} {f}.', "They planted the seeds behind the house, so that one day there would be more." if s.slots["fruit"] in ("apples", "pears", "plums", "cherries", "peaches") else "Even the {bird} got a few crumbs.")
    s("{h} had fewer {fruit} now, but {he} had [a friend beside {him}|a happy heart|much more joy].",
      "And {h} learned that {fruit} taste better when [you share them|a friend is near].",
      "From then on, when {h} had something good, {he} always [cut it in two|asked who would like some|shared it].")
    goodnight(s)


def storm(s: Story) -> None:
    tool = s.pick(("lantern", "rope", "bell", "whistle", "drum"))
    s.put(o=tool, c=s.pick(("old", "little", "brass", "small")) if tool != "rope" else s.pick(("long", "old", "strong")),
          shelter=s.pick(("a cave", "an empty barn", "a hollow tree", "an old hut", "the mill")), dream="thunder and warm soup")
    s.object = tool
    use = {"lantern": "held up the {c} lantern so that its light shone through the rain",
           "rope": "tied one end of the {c} rope to a tree and threw the other end",
           "bell": "rang the {c} bell as loudly as {he} could", "whistle": "blew the {c} whistle again and again",
           "drum": "beat the {c} drum as hard as {he} could"}[tool]
    found = {"lantern": "{f} saw the light and walked towards it", "rope": "{f} caught the rope and held on until {fhe} was safe",
             "bell": "{f} heard the ringing and followed the sound", "whistle": "{f} heard the whistle and followed the sound",
             "drum": "{f} heard the drum and followed the sound"}[tool]
    s.put(use=use, found=found)
    s.theme, s.topic, s.lesson = "a storm", "who helps a friend in a storm", "Stay calm and help each other."
    s.title = ("The Storm", "{H} and the Storm", "A Light in the Rain" if tool == "lantern" else "The Big Storm", "The Night of the Storm")
    s.facts.append(("How did {h} help {f}?", "{H} " + use + "."))
    opening(s)
    s("{He} always carried a {c} {o} [in {his} bag|on {his} belt|with {him}]. \"You never know when you will need it,\" {his} {parent} said.",
      "{His} {parent} had given {him} a {c} {o}. \"Keep it with you,\" {phe} had said.")
    s.p()
    s("{oneday}, {h} and {his} friend {f} went to [pick berries|gather wood|look for mushrooms|climb the hill].",
      "{oneday}, {h} and {f}, {his} best friend, walked far from home.")
    s("Then the sky turned [dark|grey|black], and the wind began to [howl|blow hard|shake the trees].",
      "All at once, dark clouds came over the hills and [thunder rolled|the first drops fell].",
      "In the afternoon the air grew still. Then [lightning flashed|thunder boomed] and the rain came down.")
    s.o("The rain was so thick that {h} could not see [the path|{his} own feet].", "The wind pulled at the leaves and bent the young trees.",
        "Thunder [rolled|rumbled] like [a big drum|heavy stones].", "Water ran down the path like a little river.")
    s("{h} ran into {shelter}, but when {he} turned around, {f} was not there.", "{h} found {shelter} and crept inside. But where was {f}?")
    s.p()
    s.o('"{fv}!" {cried} {h}, but the wind was louder.', "{He} called and called, but [the storm swallowed every word|nobody answered].",
        "{h} was afraid. {His} knees [shook|were weak]. But {f} was out there, all alone.")
    s('"What can I do?" {h} thought. Then {he} remembered the {o}.', "{h} wanted to cry, but {he} [took a deep breath|made {himself} think]. The {o}!",
      "Then {he} felt the {c} {o} at {his} side, and {he} had an idea.")
    s("{He} stood at the entrance. Then {he} {use}.", "{He} went back to the entrance and looked out. Then {he} {use}.")
    s("[Out in the rain|Not far away|Somewhere in the rain], {found}.")
    s("{soon} {f} [stumbled|crawled|came] into the shelter, wet and cold but safe.", "At last {f} was inside, dripping wet and shaking.")
    s.p()
    s('"I was so scared," said {f}. "Then I knew that you were there."', '"I thought I was lost," {f} {whispered}. "Thank you, {hv}."',
      '"You did not forget me," said {f}. "Never," said {h}.')
    s.o("They sat close together and [told stories|sang songs|counted the seconds between the thunder] until the storm was over.",
        "They shared a dry blanket and listened to the rain.", "Slowly the thunder moved away over the hills.")
    s("When the sun came out, [a rainbow stood over the {town}|the whole {town} shone|drops hung on every leaf], and they walked home side by side.",
      "By evening the sky was clear, and they walked home together.")
    s("{h} was still a little afraid of storms, but now {he} knew [what to do|that {he} could be brave].",
      "{His} {parent} was right: even a simple {o} can be a big help.", "And they both knew that a storm is less frightening when you are not alone.")
    goodnight(s)


def learning(s: Story) -> None:
    skill, fail, tip, done = s.pick((
        ("to swim", "{he} swallowed water and sank like a stone", "Lie on your back first and let the water hold you", "{he} swam all the way across the pond"),
        ("to whistle", "only air came out", "Wet your lips and blow very gently", "a clear, high note flew over the roofs"),
        ("to skate", "{his} feet slid away and {he} sat down hard", "Bend your knees and look ahead, not down", "{he} made a whole circle on the ice"),
        ("to fly a kite", "the kite dropped on {his} head", "Wait for the wind, and let the string out slowly", "the kite climbed until it was as small as a leaf"),
        ("to play the flute", "it squeaked like a rusty gate", "Play one note until you like it, and then the next", "{he} played a whole song without a mistake"),
        ("to row a boat", "the boat went round and round", "Pull with both arms at the same time", "the boat went straight as an arrow"),
        ("to read", "the letters seemed to dance on the page", "Read one small word, and then the next one", "{he} read a whole page aloud"),
        ("to tie a bow", "the bow fell apart", "Make two ears, cross them, and pull one through", "the bow was neat and tight"),
        ("to juggle", "the balls rolled under the table", "Begin with one ball, and then take two", "three balls danced in the air"),
        ("to dance", "{he} stepped on {his} own toes", "Count to three and listen to the drum", "{he} danced the whole song through"),
        ("to bake bread", "the bread was as hard as a brick", "Give the dough time to rest", "the loaf was round and soft"),
        ("to climb a rope", "{he} slid down again", "Hold the rope with your feet as well", "{he} touched the very top"),
    ))
    s.put(skill=skill, fail=fail, tip=tip, done=done, times=s.pick(("three", "five", "ten", "seven")), dream="the next day")
    s.theme, s.topic, s.lesson = "learning something new", "who learns {skill}", "Keep trying, a little every day."
    s.title = ("{H} Learns {skill}", "One More Try", "Try Again, {Hv}", "A Little Every Day")
    s.facts.append(("What did {h} learn?", "{H} learned {skill}."))
    opening(s)
    s("More than anything, {h} wanted {skill}.", "There was one thing {he} could not do: {he} did not know how {skill}.",
      "{His} friend {f} knew how {skill}, and {h} wanted to learn it too.", "All {his} friends knew how {skill}, but {h} did not.")
    s.p()
    s("{oneday}, {he} tried for the first time, but {fail}.", "{oneday}, {he} gave it a try. But {fail}.")
    s.o("{He} tried again, and again {fail}.", "{He} tried {times} times. Every time it was the same.", "Some of the others laughed, and {h} felt {his} ears grow hot.")
    s('"I will never learn it," {said} {h}.', '"It is too hard for me," {he} said, and {he} kicked a stone.', '"I give up!" {cried} {h}.')
    s.o("{He} sat down under the {tree} and [hid {his} face|would not speak to anyone].", "{He} went home and did not want any supper.")
    s.p()
    s("{ea} saw {him} and sat down next to {him}.",
      "{ea} had watched it all.")
    s('"When I was young, I could not do it either," said {e}. "{tip}."', '"May I tell you a secret?" {asked} {e}. "{tip}."',
      '"Nobody can do it on the first day," said {e}. "{tip}."', '"You go too fast," {e} said kindly. "{tip}."')
    s("So {h} tried again the next morning, just as {e} had said.", "{h} wiped {his} nose and tried once more.", "From then on, {h} practised a little every day.")
    s.o("The first day it went badly. The second day it went a little better.", "It was not easy, but {he} did not stop.", "Sometimes {he} wanted to give up, but then {he} thought of what {e} had said.",
        "{He} practised in the morning and {he} practised in the evening.")
    s.p()
    s("And then, [on the fifth day|one evening|at the end of the week|when nobody was looking], it worked: {done}!", "At last the day came when {done}.")
    s('"I did it!" {cried} {h}. "Did you see that, {ev}?"', '"Look! Look at me!" {cried} {h}.', "{h} laughed out loud and [clapped {his} {hands}|turned round and round].")
    s('"I saw it," said {e}, "and I saw every try before it too."', "{e} smiled. \"I knew it,\" {ehe} said.", "{e} clapped. \"You see? You did not give up,\" {ehe} said.")
    s("Now {h} shows the little ones how it is done, and {he} always tells them: a little every day.",
      "{h} learned that every [master|expert] was once a beginner.", "After that, when something was hard, {h} said to {himself}, \"I cannot do it yet.\"",
      "And {h} knew now that a mistake is only one step on the way.")
    goodnight(s)


def secret_garden(s: Story) -> None:
    s.put(o="key", c=s.pick(("rusty", "little iron", "old brass", "tiny silver")), ckey=s.pick(("under a flat stone", "in an old teapot", "inside a bird box", "at the bottom of a drawer", "in the pocket of an old coat")),
          wallc=s.pick(("grey", "mossy", "crumbling", "high")), doorc=s.pick(("green", "blue", "red", "wooden")), dream="the garden behind the wall")
    s.object = "key"
    s.theme, s.topic, s.lesson = "a secret garden", "who finds a key to a secret garden", "A little care can wake up what seems dead."
    s.title = ("The Secret Garden of {H}", "The {doorc} Door", "Behind the Wall", "The {C} Key")
    s.facts.append(("Where was the key?", "The key was {ckey}."))
    s.facts.append(("What grew in the garden in the end?", "{Flowers} grew in the garden."))
    opening(s)
    s("Near {his} home stood a {wallc} wall with a {doorc} door in it. The door was always [locked|shut].",
      "At the end of the path there was a {wallc} wall, and in the wall was a {doorc} door that nobody could open.")
    s.o('"What is behind the {doorc} door?" {he} often asked. Nobody knew.', "Sometimes {he} put {his} ear to the door and listened, but {he} heard only the wind.")
    s.p()
    s("{oneday}, {h} found a {c} key {ckey}.", "{oneday}, {he} was looking for something else when {he} found a {c} key {ckey}.")
    weather(s)
    s("{His} heart began to beat faster. Could it be the key to the {doorc} door?", '"I know where this belongs!" {he} thought.', "At once {he} thought of the {doorc} door.")
    s("{He} [ran|hurried] to the wall and put the key into the lock. It did not turn.", "{He} put the key into the lock, but it would not turn.")
    s.o("{He} pushed and pulled, but the lock was full of [sand|rust|dirt].", '"It is too old," {h} {whispered}.')
    s("Then {he} put a drop of oil on it and tried again. [Click|Clack|Creak]! The door opened.", "{He} cleaned the lock with [a twig|a thin stick|a bit of straw] and tried again. [Click|Clack|Snap]! The door swung open.")
    s.p()
    s("Behind it lay a garden, but [everything in it was dry and brown|it was full of weeds|only thorns and dead leaves were left].",
      "{He} stepped into an old garden. [The paths were gone under the weeds|The beds were dry|No flower was left].")
    s.o("In the middle stood [a bench|a stone bowl|a dry fountain], covered with ivy.", "It was very quiet there, as if the garden were asleep.", "Only one {bird} sat on the wall and looked at {him}.")
    s('"Poor garden," said {h}. "I will [wake you up|make you green again|look after you]."', '"Somebody must look after you," {he} said to the garden.', "{h} looked around and knew at once what {he} wanted to do.")
    s.o("{He} told only {f}, {his} best friend. \"I can keep a secret,\" said {f}, and {fhe} brought a spade.", "The next day {he} came back with {f}, a spade and a bucket.")
    s("Day after day {h} pulled weeds, carried water and [planted|sowed] {flowers}.", "All spring {he} worked there. {He} dug, {he} watered, and {he} planted {flowers}.")
    s.o("For a long time nothing happened. {h} watered the brown earth and waited.", "{His} {hands} were [dirty|sore], but {he} sang while {he} worked.", "Then it rained for three days, and {h} could only wait.")
    s.p()
    s("Then, one warm morning, the first green tips came up, and {soon} the whole garden was full of {flowers}.",
      "And one morning, when {he} opened the {doorc} door, {he} stood still. The {flowers} were in bloom!")
    s.o("Bees hummed, butterflies danced, and the {bird} built a nest in the ivy.", "It smelled so sweet that everyone on the other side of the wall stopped and smiled.")
    s("{h} left the {doorc} door open, so that everyone in the {town} could [come in|sit among the flowers|enjoy it].",
      "{h} hung the {c} key on a nail, for the door was never locked again.", "The garden had only been waiting for someone who cared.")
    goodnight(s)


def mistake(s: Story) -> None:
    what, how = s.pick((("bowl", "while {he} was dancing in the kitchen"), ("vase", "while {he} was playing ball indoors"), ("window", "with a ball"),
                        ("teapot", "when {he} ran past the table"), ("flower pot", "when {he} jumped over the fence"), ("jar of honey", "when {he} climbed on the shelf"),
                        ("lamp", "while {he} was chasing a moth"), ("plate", "when {he} tried to carry too much")))
    s.put(o=what, how=how, dream="a light heart", cc=s.pick(("blue", "white", "green", "yellow", "painted")) if what != "window" else "small", blame=s.pick(("the cat", "the wind", "the {bird}", "the dog")) if not s.animal else s.pick(("the wind", "the {bird}", "the rain")))
    s.put(mend=s.pick(("sweep the floor every day for a week", "help in the garden", "carry wood all week", "wash the dishes", "pick up every piece", "water the plants")))
    s.theme, s.topic, s.lesson = "saying sorry", "who breaks a {o} and says sorry", "It is better to tell the truth, even when it is hard."
    s.title = ("The Broken {O}", "{H} Says Sorry", "The Truth", "A Hard Word to Say")
    s.facts.append(("What did {h} break?", "{H} broke a {o}."))
    s.facts.append(("Who forgave {h}?", "{E} forgave {him}."))
    opening(s)
    s("{oneday}, {h} was visiting {ea}.", "{He} often visited {ea}.")
    s("And then it happened. {h} broke a {o} {how}.", "Crash! {h} broke a {cc} {o} {how}.", "{how}, {h} broke a {cc} {o}." if how != "with a ball" else "With one wild throw of a ball, {h} broke a {o}.")
    s.o("{h} stood very still and looked at the pieces.", "{His} face grew hot and {his} tummy felt cold.", "For a moment there was no sound at all.")
    s.p()
    s('"What was that noise?" {asked} {e} from the next room.', '{e} came in. "Oh dear, what happened here?" {ehe} {asked}.')
    s('"It was {blame}," {said} {h} quickly.', '"I do not know," said {h}. "Maybe it was {blame}."', '{h} was afraid, so {he} said, "It must have been {blame}."')
    s("{e} only nodded and [fetched a broom|swept up the pieces|said no more].", '"I see," said {e}, and {ehe} began to sweep.')
    s.p()
    s("But {h} did not feel better. The lie sat in {his} tummy like a [stone|cold potato|lump of lead].", "At home, {h} could not [eat|play|sleep]. {He} kept thinking about the {o}.",
      "All evening {h} felt bad. {He} could not even look at {his} supper.")
    s.o('"What is wrong?" {asked} {his} {parent}. "Nothing," said {h}, but a tear ran down {his} nose.', "{He} turned from one side to the other in {his} bed.",
        '"What should you do when you have done something wrong?" {he} asked {his} {parent}. "Say it and make it right," said {his} {parent}.')
    s("The next morning {he} walked back to {e}, and every step was hard.", "Early the next day, {he} knocked at {e}'s door.", "In the morning {he} made up {his} mind and went back.")
    s('"It was not {blame}," {h} {whispered}. "I broke the {o}. I am very sorry."', '"I did not tell the truth," said {h}. "I broke it. I am sorry."')
    s.p()
    s('{e} put an arm around {him}. "A {o} is only a {o}," {ehe} said. "The truth is worth much more."', '"I knew it," said {e} gently. "I was waiting for you to tell me. Thank you."',
      '"That was brave," said {e}. "It is not easy to say sorry."')
    s('"How can I make it right?" {asked} {h}. "You can {mend}," said {e}.', '"I will {mend}," said {h}, and {he} kept {his} word.', '"May I help you?" {asked} {h}. "I could {mend}." {E} was glad.')
    s.o("They laughed together, and {e} gave {him} [a warm bun|a cup of cocoa|a slice of cake].", "Then they drank tea together as they always did.")
    s("When {h} walked home, {his} heart was as light as a feather.", "The lump in {his} tummy was gone, and {h} [hopped|skipped] all the way home.",
      "{h} learned that a true word is hard at first and easy afterwards, while a lie is just the other way round.", "After that, {h} always told the truth, even when {his} voice shook.")
    goodnight(s)


def race(s: Story) -> None:
    kind, prize = s.pick(("race around the lake", "race to the top of the hill", "sack race", "race to the old mill", "race through the woods", "race to the river and back", "race across the meadow")), s.pick(("a golden cup", "a basket of apples", "a big cake", "a blue ribbon", "a jar of honey", "a silver bell"))
    s.put(race=kind, prize=prize, trouble=s.pick(("[slipped|fell] and hurt {fhis} foot", "fell into a ditch", "was stuck in the mud", "got caught in a thorn bush")), dream=prize, theprize="the " + prize.split(" ", 1)[1])
    s.theme, s.topic, s.lesson = "a race", "who runs in a {race}" if kind.startswith("race") else "in a {race}", "Being a good friend is better than winning."
    s.title = ("The Great Race", "{H} and the Race", "The {race}", "Who Will Win?")
    s.facts.append(("What was the prize?", "The prize was {prize}."))
    opening(s)
    s("Every year there was a {race}, and the prize was {prize}.", "{oneday}, a sign hung in the {town}: there would be a {race}. The prize was {prize}.", "Soon it was time for the big {race}. The winner would get {prize}.")
    s("{h} wanted to win more than anything.", '"This year I will win," said {h}.', "{h} practised every [morning|evening|day] for weeks.")
    s.o("{f}, who was very fast, wanted to win too.", "But {f} was fast, and everyone thought that {f} would win.", "{His} {parent} said, \"Do your best and be fair.\"")
    s.p()
    s("On the day of the race everybody came to watch.", "At last the day came. Flags [waved|fluttered] and [a drum beat|children cheered].", "On the morning of the race, {h} could hardly eat {his} breakfast.")
    weather(s)
    s('"Ready, steady, go!" {cried} {e}, and off they went.', '{e} raised a flag. "Go!" {ehe} {cried}.', "{e} rang a bell, and the race began.")
    s("{f} was in front, but {h} was close behind.", "At first {h} was last, but {he} kept going and passed one after another, until only {f} was ahead.", "{h} and {f} were side by side. First one was ahead, then the other.")
    s.o("{His} heart thumped, and the wind [whistled in|tickled] {his} ears.", "{He} could already see the finish.", '"Faster, faster!" {he} told {himself}.')
    s.p()
    s("Then, near the end, {f} {trouble}.", "Suddenly there was a cry. {f} {trouble}.")
    s("{h} could see the finish. Nobody was in front of {him} now. But {he} [stopped|slowed down] and looked back.", "Now {h} could win! {He} ran three more steps. Then {he} stopped.")
    s.o("{He} thought of {theprize}. Then {he} thought of {f}.", '"Go on!" said {f}. "You can win!"', "It was a hard choice, but it did not take long.")
    s('"Hold on to me," said {h}, and {he} helped {f} up.', "{He} turned around, ran back and pulled {f} up. \"Lean on me,\" {he} said.")
    s("Slowly, arm in arm, they came to the finish. Others had passed them long before.", "Side by side they [limped|walked] over the line. They were the very last.", "Together they crossed the line, and they came in last.")
    s.p()
    s("But everybody clapped and cheered, louder than for the winner.", "Yet nobody laughed. All the people stood up and clapped.")
    s.o('"Why did you stop?" {asked} {f}. "Because you are my friend," said {h}.',
        "{e} made a speech. \"Today we saw something better than speed,\" {ehe} said.")
    s("The winner looked at them, and then shared {theprize} with both of them." if prize not in ("a blue ribbon", "a golden cup", "a silver bell") else "The winner got {theprize}, but {h} got a hug from {f}, and that was better.",
      "{h} did not win {theprize}, but {he} had won something better: a friend for life.")
    s("And next year? Next year they would run again, side by side.", "{h} never forgot that day, and {f} did not forget it either.", "So {h} learned that there is more than one way to win.")
    goodnight(s)


def broken_toy(s: Story) -> None:
    toy = s.pick(tuple(w.BREAKABLE))
    part, how = w.BREAKABLE[toy]
    s.put(o=toy, c=s.pick(w.COLOURS), part=part, how=how, fix=s.pick(("glue", "a bit of wire", "strong thread", "a small nail", "a piece of string", "a strip of leather")), dream="the {c} " + toy)
    s.object = toy
    s.facts += [("What colour was the {o}?", "The {o} was {c}."), ("Who mended the {o}?", "{E} and {h} mended it together.")]
    s.theme, s.topic, s.lesson = "a broken toy", "who has a broken {o}", "Many broken things can be mended."
    s.title = ("The Broken {O}", "Mending the {O}", "As Good as New", "{H} and the {c} {o}")
    opening(s)
    s("{He} had a {c} {o} that {he} loved [very much|more than all {his} other toys].", "Of all {his} toys, {he} liked the {c} {o} best.", "{His} {parent} had made {him} a {c} {o}, and {he} played with it every day.")
    s.p()
    s("{oneday}, the {o} fell [down the stairs|off the wall|from the table], and {part} {how}.", "{oneday}, {h} [tripped over a root|ran too fast|stumbled] and dropped the {o}. Crack! {part} {how}.")
    s.o('"My {o}!" {cried} {h}. "It is broken!"', "{h} picked up the pieces, and {his} eyes filled with tears.", "{He} tried to push the pieces together, but they fell apart again.")
    s("{He} tried to mend it with [mud|sticky jam|a blade of grass|honey], but it did not hold.", "First {he} tried to mend it with [a leaf|wet clay|porridge]. That did not work, because it was too soft.")
    s.o("\"We can get you a new one,\" said {his} {parent}. But {h} did not want a new one.", '"Throw it away," said one of the others. {h} shook {his} head.', "{He} was {sad} all day.")
    s.p()
    s("Then {he} thought of {ea}, who could mend almost anything.", '"Go and see {e}," said {his} {parent}. "{Ehe} can mend anything."', "At last {he} put the {o} in a basket and carried it to {e}, who knew a lot about mending.")
    s('{e} [put on {ehis} glasses|bent over the {o}|turned the {o} round and round]. "Hmm," {ehe} said. "We can mend this, but I need your help."', '"Can you make it whole again?" {asked} {h}. "We can, together," said {e}.')
    s('"Hold this," said {e}, and {h} held the {o} still while {e} used {fix}.', "{h} held {part} in place, and {e} fixed it with {fix}.", "{e} showed {him} how to do it, and {h} fixed {part} with {fix}.")
    s.o("It took a long time, and {h} had to be very patient.", '"Slowly," said {e}. "Good work needs time."', "Outside it grew dark, but they worked on by the light of a lamp.")
    s.p()
    s("When they were done, the {c} {o} was whole again. You could hardly see where it had been broken.", "At last {e} put down {ehis} tools. \"There,\" {ehe} said. The {o} was as good as new.", "In the end there was only a small line where {part} had been broken. \"That line tells a story,\" said {e}.")
    s('"Thank you, {ev}!" {cried} {h}, and {he} hugged {ehim}.', '"It is even better than before," {said} {h}, "because we made it together."', "{h} was so {glad} that {he} danced around the room.")
    s.o('"Next time you can do it alone," {said} {e}.', "The next week a friend came with a broken [cup|wheel|chair], and {h} knew just what to do.", "After that {h} often came to help {e} in the workshop.")
    s("{h} learned that not everything that breaks is lost.", "From that day on, {h} did not cry when something broke. {He} went and looked for {fix}.", "And {h} loved the {c} {o} even more than before.")
    goodnight(s)


def birthday_gift(s: Story) -> None:
    gift, steps = s.pick((("a little wooden boat", "carved it from a piece of wood"), ("a warm scarf", "knitted it with soft wool"), ("a picture of the {tree}", "painted it with all {his} colours"),
                          ("a paper lantern", "cut it out with great care"), ("a crown of {flowers}", "wove it in the early morning"), ("a small bird house", "built it from old boards"),
                          ("a book of stories", "wrote every page {himself}"), ("a clay cup", "shaped it from river clay"), ("a string of shells", "threaded them one by one")))
    s.put(gift=gift, steps=steps, thegift="the " + gift.split(" ", 1)[1], shop=s.pick(("a music box", "a silver ring", "a fine hat", "a big clock", "a glass lamp")), coins=s.pick(("two", "three", "four", "five")), dream="birthdays")
    s.theme, s.topic, s.lesson = "a birthday", "who looks for a birthday gift", "The best gifts are made with love."
    s.title = ("The Birthday Gift", "A Gift for {F}", "The Best Gift", "{H} Finds a Gift")
    s.facts += [("What did {h} give {f}?", "{H} gave {f} {gift}."), ("Whose birthday was it?", "It was {f}'s birthday.")]
    opening(s)
    s("{His} best friend was {fa}.", "{He} had a dear friend, {fa}.", "Next door lived {his} friend, {fa}.")
    s("It was almost {f}'s birthday, but {h} had no gift yet.", "In three days it would be {f}'s birthday, and {h} wanted to give {fhim} something special.")
    s.p()
    s("{h} went to the market and saw {shop}. But it cost too much, and {he} had only {coins} coins.", "In a shop window {he} saw {shop}. \"How much is it?\" {he} {asked}. It was far too much, for {he} had only {coins} coins.", "{He} counted {his} coins. There were only {coins}, and that was not enough for {shop}.")
    weather(s)
    s.o("{h} walked home with {his} head down.", '"What can I give with only {coins} coins?" {he} thought.', "{He} looked for something in {his} box, but there were only [old strings|buttons|feathers] in it.")
    s("At home {he} told {his} {parent} about it. \"A gift does not have to be bought,\" said {his} {parent}. \"What does {f} love?\"", "On the way {he} met {e}. \"The best gifts are not in any shop,\" {ehe} said. \"Make something yourself.\"")
    s("{h} thought about it. Then {he} smiled. {He} would make {gift}!", "{h} sat under the {tree} and thought. At last {he} knew: {gift}!")
    s.p()
    s("{He} {steps}.", "All evening {he} worked, and {he} {steps}.", "It was not easy, but {he} {steps}.")
    s.o("The first try went wrong, and {he} had to begin again.", "{He} worked until {his} {hands} were tired.", "Nobody was allowed to look.", "{He} hummed while {he} worked and thought of {f}.")
    s("On the birthday, the others came with big, bright boxes. {h} suddenly felt [shy|small].", "Then the day came. There was cake, and there were games. {h} waited until the end, because {he} was shy about {his} gift.", "At the party there were many fine gifts. {h} [hid|held] {his} own behind {his} back.")
    s.o('"It is only something small," {h} {whispered}.', '"I made it myself," {he} said, and {his} ears turned red.')
    s.p()
    s('When {f} saw {thegift}, {fhe} was quiet for a moment. "You made this for me?" {fhe} {asked}.', "{f} looked at {thegift}, and {fhis} eyes began to shine.")
    s('"It is the best gift of all," said {f}, and {fhe} hugged {him}.', '"Nobody else in the whole world has one like this," said {f}.', '"I will keep it always," {said} {f}.')
    s.o("Then they all ate cake until only crumbs were left.", "They danced and sang until the moon came up.", "And {h} got the biggest piece of cake.")
    s("{h} still had {coins} coins in {his} pocket, and {he} was the happiest guest of all.", "So {h} learned that a gift made with love is worth more than gold.", "On the way home, {h} thought that giving was even nicer than getting.")
    goodnight(s)


def dark(s: Story) -> None:
    sound, cause = s.pick((("a scratching sound at the window", "a branch of the {tree} that moved in the wind"), ("a soft tapping", "drops of rain that fell on an old bucket"), ("a low hoot", "an owl that was calling its young"), ("a rustling in the corner", "a tiny moth that danced around a paper bag"), ("a creaking noise", "the garden gate that swung in the wind"), ("a strange humming", "the kettle that was singing on the stove")))
    light = s.pick(("candle", "lantern", "lamp", "small oil lamp"))
    s.put(sound=sound, cause=cause, light=light, shadow=s.pick(("a giant", "a dragon", "a big bear", "a witch")) if not s.animal else s.pick(("a giant", "a dragon", "a monster")), item=s.pick(("coat on a hook", "chair with a hat on it", "pile of clothes", "broom with a cap on it")), dream="friendly stars")
    s.theme, s.topic, s.lesson = "being afraid of the dark", "who is afraid of the dark", "Look closely, and most fears become small."
    s.title = ("Afraid of the Dark", "{H} and the Night", "The Noise in the Night", "The Friendly Dark")
    s.facts.append(("What made the noise?", "It was {cause}."))
    opening(s)
    s("{h} was not afraid of [rain|heights|spiders|bees], but {he} was afraid of the dark.", "By day {h} was brave, but at night {he} was afraid of the dark.", "There was just one thing {h} did not like: the dark.")
    s.o("Every evening {he} asked, \"Can the light stay on?\"", "When the sun went down, {he} always stayed close to {his} {parent}.", "{He} pulled the blanket up to {his} nose every night.")
    s.p()
    s("One night {he} woke up. {He} heard {sound}.", "One night, when everyone was asleep, there was {sound}.", "In the middle of the night {h} heard {sound}.")
    s("In the corner stood something tall. It looked like {shadow}!", "And was that not {shadow} over there in the corner?", "Then {he} saw a shape by the wall. {He} was sure it was {shadow}.")
    s.o("{His} heart went boom, boom, boom.", "{He} did not dare to move a toe.", "{h} held {his} breath and counted to ten.", "{He} wanted to call out, but {his} voice was gone.")
    s('"Is somebody there?" {he} {whispered}.', "At last {he} called for {his} {parent}.")
    s.p()
    s("{His} {parent} came in with a {light} and sat down on the bed. \"Shall we look together?\" {phe} {asked}.", "{His} {parent} woke up and brought a {light}. \"Let us find out what it is,\" {phe} said.")
    s("They went to the corner, side by side. It was not {shadow} at all. It was only a {item}!", "{h} held up the {light}. The shape in the corner was just a {item}.")
    s.o("{h} had to laugh.", "They both began to laugh.", '"How silly I was," {said} {h}.')
    s("Then they listened for the sound. It was {cause}.", '"And the noise?" {asked} {h}. They looked. It was {cause}.')
    s.p()
    s('"The dark is only the day with its eyes closed," said {his} {parent}.', '"Nothing is there at night that is not there by day," said {his} {parent}.', '"The night is not bad," {his} {parent} said. "It gives us the moon and the stars."', '"Everyone is afraid sometimes," said {his} {parent}. "It helps to look closely."')
    s.o("They opened the curtain, and {h} saw more stars than {he} could count.", "Outside, the moon made a silver path on the [grass|roof|water].", "They sat at the window for a while and listened to the crickets.")
    s("When {he} heard the sound again, {h} smiled. \"I know who you are,\" {he} {whispered}, and {he} fell asleep.", "That night {h} blew out the light {himself}, and {he} slept until morning.", "From then on, when {h} was afraid, {he} took a deep breath and looked again.",
      "After that night, the dark was not {his} enemy any more. It was only the place where the stars lived.")


def neighbour(s: Story) -> None:
    job, trouble, how = s.pick((
        ("carry wood for the winter", "{ehis} back hurt", "carried the logs one by one and stacked them in a neat row"),
        ("pick the apples", "the ladder was too high for {ehim}", "climbed up and handed the apples down one by one"),
        ("paint the fence", "{ehis} {ehands} shook", "painted the fence from one end to the other"),
        ("find {ehis} glasses", "{ehe} could see nothing without them", "looked in every room and found them in the bread box"),
        ("fetch water from the well", "the bucket was too heavy", "fetched half a bucket at a time, ten times"),
        ("clear the snow from the path", "{ehe} had a bad cold", "pushed the snow away until the path was clear"),
        ("dig the garden", "{ehis} knees hurt", "dug the beds and planted rows of beans"),
        ("mend the roof", "{ehe} could not climb any more", "climbed up and put every tile back in its place")))
    s.put(job=job, trouble=trouble, how=how, thanks=s.pick(("a jar of plum jam", "a warm pair of socks", "a story about the old days", "a little carved bird", "a basket of pears", "a pot of honey")), dream="{e} smiling at the window")
    s.theme, s.topic, s.lesson = "helping a neighbour", "who helps an old neighbour", "Helping makes two people happy."
    s.title = ("A Good Neighbour", "{H} Lends a Hand", "Helping {E}", "The Kind Neighbour")
    s.facts += [("Who did {h} help?", "{H} helped {e}."), ("What did {e} give {h}?", "{E} gave {him} {thanks}.")]
    opening(s)
    s("Next door lived {ea}.", "Not far away lived {ea}.", "{His} neighbour was {ea}.")
    s.o("{e} was old and walked very slowly.", "{e} lived all alone and did not talk much.", "Some said that {e} was grumpy, but nobody really knew {ehim}.")
    s.p()
    s("{oneday}, {h} saw that {e} was trying to {job}. But {trouble}.", "{oneday}, {h} heard a long sigh. {e} wanted to {job}, but {trouble}.")
    weather(s)
    s("{h} was on {his} way to play with {f}. {He} stopped at the gate.", "{h} wanted to run past, because {f} was waiting to play. But then {he} stopped.")
    s('"Can I help you, {ev}?" {he} {asked}.', '"May I do that for you?" {asked} {h}.', '"Let me help," said {h}.')
    s.o('"You are so small," said {e}. "But you may try."', '"That is a lot of work," said {e}. "I have time," {said} {h}.', "{e} looked surprised. \"Nobody has asked me that for a long time,\" {ehe} said.")
    s.p()
    s("So {h} {how}.", "{h} got to work at once. {He} {how}.")
    s.o("It was hard work, and soon {he} was warm and tired.", "Then {f} came to see where {he} was. \"I will help too,\" said {f}, and then it went twice as fast.", "{e} sat on the bench and told {him} what to do.", "Once {he} had to stop and rest, but {he} did not give up.")
    s("When it was done, {e} had tears in {ehis} eyes. \"Thank you,\" {ehe} said.", '"It is finished!" {cried} {h}. {E} smiled for the first time in many days.')
    s("{e} went inside and came back with {thanks}. \"This is for you.\"" if "story" not in s.slots["thanks"] else "Then they sat on the step, and {e} gave {him} {thanks}.", "As a thank you, {e} gave {him} {thanks}.")
    s.p()
    s.o('"Will you come again?" {asked} {e}. "Tomorrow!" {replied} {h}.', "They sat in the sun for a while and talked about [old times|the weather|gardens and birds].", "After that, {h} waved at {e} every morning, and {e} waved back.")
    s("{h} had come to help for an hour, and {he} had found a friend for life.", "On the way home, {h} felt warm inside, although the evening was cool.", "{h} learned that a little help can be a big gift.", "{He} was late for {his} game, but {h} thought it had been the best day of the week.")
    goodnight(s)


def treasure(s: Story) -> None:
    first, second = s.rng.sample(("the crooked bridge", "the hollow log", "the white stone", "the old well", "the scarecrow", "the twin birches", "the broken wall"), 2)
    s.put(first=first, second=second, found=s.pick(("an old chest", "a dusty tin box", "a wooden box", "a clay jar")), steps=s.pick(("seven", "ten", "twelve", "twenty")),
          inside=s.pick(("a note and a bag of sweets", "a bag of painted stones and a letter", "an old flute and a book of songs", "a bag of seeds and a letter", "a spyglass and a note")), mapspot=s.pick(("in an old book", "behind a loose brick", "in a bottle by the stream", "under the floor boards", "inside an old hat")), dream="maps and secret paths")
    s.put(note="letter" if "letter" in s.slots["inside"] else "note")
    s.object = "map"
    s.theme, s.topic, s.lesson = "a treasure hunt", "who finds a treasure map", "The best treasure is the one you share."
    s.title = ("The Treasure Map", "{H} and the Treasure", "The Treasure Hunt", "X Marks the Spot")
    s.facts += [("Where was the map?", "The map was {mapspot}."), ("What was in the treasure?", "Inside there was {inside}.")]
    opening(s)
    s("{oneday}, {h} found a map {mapspot}.", "{oneday}, {mapspot}, {h} found an old map.", "{oneday}, {he} found a piece of paper {mapspot}. It was a map!")
    s('"A treasure map!" {cried} {h}, and {he} ran to fetch {f}.', "{He} showed it to {f}, {his} best friend. \"Let us look for the treasure,\" said {f}.", "There was a big X on it. {h} called {f}, and they bent over the map together.")
    s.o("They packed [bread and cheese|apples and water|a spade and some nuts] and set off.", '"Do you think there is gold?" {asked} {f}. "Maybe," {replied} {h}.', "The paper was so old that it was yellow at the edges.")
    weather(s)
    s.p()
    s('"Start at {first}," the map said. They found it easily.', "The map led them first to {first}.", 'On the map was written: "Begin at {first}, then go to {second}."')
    s("From there they went to {second}.", "Then they had to find {second}. It was hidden behind [bushes|tall grass|a hedge].", "Next came {second}. They walked right past it, and {f} saw it only when they turned back.")
    s("\"Now {steps} steps to the north,\" read {h}. They counted, but there was nothing there.", "Then it was {steps} steps to the north. They dug, but they found only [stones|roots|worms].")
    s.o('"Somebody was here before us," {said} {f} sadly.', "{f} sat down on a stone. \"There is no treasure,\" {fhe} said.", "They were hot and tired and [a little cross|very hungry].")
    s.p()
    s('{h} looked at the map again. "We held it upside down!" {he} {cried}.', '"Wait," said {h}. "Our steps are small. The one who drew this map had long legs!"', '"That is not north," said {h} suddenly. "The sun sets over there, so north is this way!"')
    s("They tried again and began to dig. Clonk! There was {found}.", "So they tried once more, and this time the spade hit something hard. It was {found}.")
    s("Inside there was {inside}.", "With shaking {hands} they opened it. Inside was {inside}.")
    s("The {note} said: \"To the ones who did not give up.\"" if "note" in s.slots["inside"] or "letter" in s.slots["inside"] else "It was not gold, but it was better than gold.", "It was no gold, but they were happy all the same.", '"It is wonderful," {f} {whispered}.')
    s.p()
    s.o("They shared everything, half for {h} and half for {f}.", "On the way home they sang so loudly that the {bird} flew up from its branch.", "They put the map back {mapspot}, so that others could find it one day.")
    s("The two friends had walked far that day, and they had found the treasure because they had looked twice.", "And what was the best part? {h} said it was the treasure, but {f} said it was the hunt.", "{h} learned that when you are stuck, it helps to turn the map around.",
      "They buried {found} again with [a button|a marble|a drawing] inside, a treasure for somebody else.")
    goodnight(s)


def market(s: Story) -> None:
    want, fruit = s.pick(("a drum", "a kite", "a straw hat", "a picture book", "a paint box", "a wooden horse", "a tin whistle")), s.pick(w.FRUITS)
    s.put(want=want, fruit=fruit, wantn=want.split(" ", 1)[1], trouble=s.pick(("the wheel of the cart broke", "a goat ate half of the {fruit}", "it began to rain", "nobody stopped at the stall")), dream="the busy market")
    s.object = s.slots["wantn"]
    s.theme, s.topic, s.lesson = "a day at the market", "who sells {fruit} at the market", "Honest work and a kind heart bring luck."
    s.title = ("Market Day", "{H} Goes to Market", "A Day at the Market", "{H} and the {fruit}")
    s.facts += [("What did {h} sell?", "{H} sold {fruit}."), ("What did {h} want to buy?", "{H} wanted to buy {want}.")]
    opening(s)
    s("{h} wished for {want}, but {he} had no money.", "There was one thing {he} wanted very much: {want}.", "At the market {he} had seen {want}, and {he} thought of it day and night.")
    s('"You may sell our {fruit} at the market," said {his} {parent}.', '"If you work for it, you can buy it yourself," said {his} {parent}. "Take the {fruit} to the market."')
    s.p()
    s("So {oneday} {h} filled a cart with {fruit} and set out.", "Early in the morning {he} filled two baskets with {fruit} and walked to the market.")
    weather(s)
    s("The market was full of [noise and colours|voices and good smells|noise and laughter].", "There were stalls with [bread, cheese and flowers|pots, hats and ribbons|fish, eggs and honey] everywhere.")
    s.o('"Sweet {fruit}!" {cried} {h}. "Fresh {fruit}!"', "{h} put the best {fruit} on top, where everyone could see them.", "At first {h} was too shy to call out.")
    s("But then {trouble}.", "For a while all went well. But then {trouble}.")
    s.o('"What bad luck," {said} {h}.', "{h} nearly cried.", "{h} sat down behind {his} stall and sighed.")
    s.p()
    s("At that moment {ea} came by.", "Just then {h} saw {e}, who had dropped a purse. {He} picked it up and ran after {ehim}.")
    s('"You look tired, {ev}," said {h}. "Have some {fruit}. They cost nothing for you."', '"Please take some {fruit}," said {h} to {e}. "You must be hungry."')
    s("{e} ate and smiled. \"These are the best {fruit} in the whole {town}!\" {ehe} said so loudly that everyone turned around.", '"Come here, all of you!" {cried} {e}. "You must try these {fruit}!"')
    s("Then they all wanted some, and soon [everything was sold|nothing was left|the baskets were empty].", "People came from all sides, and in [an hour|no time] the {fruit} were gone.")
    s.p()
    s("{h} counted the coins. There was enough for the {wantn}!", "There was enough money for the {wantn}, and two coins were left over.")
    s.o("{He} bought {want} and a [bun|flower|ribbon] for {his} {parent}.", "With the last coin {he} bought a [cake|flower] and gave it to {e}.", "{He} carried the {wantn} home as if it were made of glass.")
    s("On the way home {he} sang all the songs {he} knew.", "{h} had worked for it {himself}, and so the {wantn} was twice as dear to {him}.", "{His} {parent} was proud of {him}. \"You were kind first, and luck came second,\" {phe} said.")
    goodnight(s)


def baking(s: Story) -> None:
    bake = s.pick(w.BAKES)
    wrong, why = s.pick((("salt", "sugar"), ("pepper", "cinnamon")))
    missing = s.pick(("eggs", "butter", "honey", "flour", "milk"))
    s.put(bake=bake, wrong=wrong, why=why, missing=missing, swap=s.pick(("a jar of jam", "some fresh {flowers}", "a bag of nuts", "a story")), dream="the smell of warm cake")
    s.theme, s.topic, s.lesson = "baking", "who bakes a {bake}", "Read twice and taste once."
    s.title = ("The {Bake}", "Baking Day", "{H} Bakes", "The Funny {bake}")
    s.facts += [("What did {h} bake?", "{H} baked a {bake}."), ("What went wrong the first time?", "{H} used {wrong} instead of {why}.")]
    opening(s)
    s("{oneday}, {h} wanted to bake a {bake} for {his} {parent}.", "{oneday}, {h} said, \"I will bake a {bake}, all by myself!\"", "It was raining outside, so {h} and {f} decided to bake a {bake}.")
    s.o("{He} tied on an apron that was much too long.", "{He} took down the big bowl and the wooden spoon.", "{f} came to help and washed {fhis} {fhands} first.")
    s.p()
    s("But there was no {missing} in the house." if missing not in ("eggs",) else "But there were no eggs in the house.", "{He} looked on the shelf, but the {missing} had run out." if missing != "eggs" else "{He} looked on the shelf, but not one egg was left.")
    s("So {he} went next door to {e}. \"I have {missing},\" said {e}. \"Bring me a piece when it is done.\"", '"You can have some of mine," said {e}, who lived next door. "But save me a slice!"')
    s("{h} stirred and stirred, and {soon} the {bake} was in the oven.", "Then {he} mixed everything together and put it in the oven.")
    s.o("The kitchen was white with flour, and so was {h}.", "There was flour on the floor, on the chairs and on {his} nose.", '"It smells a little strange," said {f}.')
    s("When {he} tasted it, {he} made a face. {He} had used {wrong} instead of {why}!", "But what was that? The first bite tasted awful. {h} had taken {wrong} and not {why}!")
    s.p()
    s("{h} wanted to cry, but then {he} [began to laugh|had to laugh].", '"All that work for nothing," {h} sighed.', '"Nobody can eat this," {said} {h}.')
    s.o('"We still have {missing} left," said {f}. "Let us try again."', '"Even the best bakers make mistakes," said {his} {parent}.', "{He} gave a crumb to the {bird}, but even the {bird} did not want it.")
    s("So {he} washed the bowl and began again. This time {he} tasted everything first.", "{He} tried a second time, and now {he} read every label twice.", "This time {f} read the recipe aloud while {h} stirred.")
    s("[An hour later|When the clock struck four|At last], a wonderful smell filled the house. The {bake} was golden and perfect.", "And when the oven door opened, there was a golden {bake}, warm and sweet.")
    s.p()
    s("{h} cut it into pieces and took the first one to {e}, just as {he} had promised.", "The first piece went to {e}, because a promise is a promise.")
    s.o('"Mmm," said {e}. "Not salty at all!"' if wrong == "salt" else '"Mmm," said {e}. "This is the best {bake} I have ever eaten."', "{His} {parent} ate two pieces and asked for a third.", "{e} gave {him} {swap} in return." if "story" not in s.slots["swap"] else "{e} told {him} a funny story in return.")
    s("They all laughed about the first {bake}, and they ate the second one to the last crumb.", "Since then there is a note on the jar in the kitchen: \"This is {wrong}!\"", "And {h} learned that you can always wash the bowl and start again.")
    goodnight(s)


def sea_journey(s: Story) -> None:
    helper, deed = s.pick((("a tired donkey", "gave it some water"), ("a goat stuck in a fence", "set it free"), ("a hungry crow", "shared {his} bread with it"),
                           ("a dog with a sore foot", "pulled a thorn from its foot"), ("a turtle on its back", "turned it over"), ("a duck caught in a net", "set it free")))
    s.put(way=s.pick(("followed the river", "walked along the old road", "went over the hills")), helper=helper, kind=deed,
          keep=s.pick(("a pink shell", "a round stone", "a bottle full of sand", "a piece of smooth green glass", "a white feather")), block=s.pick(("a wide marsh", "a deep stream", "a thick wood", "a fork in the road")), dream="waves and gulls")
    s.put(hn=next(n for n in ("donkey", "goat", "crow", "dog", "turtle", "duck") if n in helper), thekeep="the " + s.slots["keep"].split(" ", 1)[1])
    s.object = "shell" if "shell" in s.slots["keep"] else "sea"
    s.theme, s.topic, s.lesson = "a journey to the sea", "who wants to see the sea", "A kind deed comes back to you on the road."
    s.title = ("The Way to the Sea", "{H} Goes to the Sea", "A Journey to the Sea", "The Sound of the Sea")
    s.facts += [("Who helped {h} on the way?", "The {hn} helped {him}."), ("What did {h} bring home from the sea?", "{H} brought home {keep}.")]
    opening(s)
    s("{h} had never seen the sea.", "{His} grandfather often talked about the sea, but {h} had never been there.", '"What does the sea look like?" {h} asked. "Bigger than the sky," said {his} {parent}.')
    s("{oneday}, {he} packed some bread and said goodbye.", "{oneday}, {he} put bread and an apple in {his} bag and set off.", '"I want to see it with my own eyes," said {h}, and {oneday} {he} set out.')
    s.p()
    s("{He} {way} until {his} feet were sore.", "All day long {he} {way}.")
    weather(s)
    s("On the way {he} met {helper} and {kind}.", "Beside the path was {helper}. {h} stopped and {kind}.")
    s('"Thank you," said the {hn}. "I will not forget it."', 'The {hn} was glad. "You have a good heart," it said.')
    s.o("{h} waved and walked on.", "At night {he} slept under a {tree} and listened to the crickets.", "The next day the road was longer and hotter than before.")
    s.p()
    s("Then {he} came to {block}, and {he} did not know how to go on.", "But suddenly there was {block}, and no one was there to ask.")
    s.o('"Must I turn back now?" {h} {asked}.', "{He} sat down on a stone and looked at {his} tired feet.", "{He} tried to find a way, but each time {he} had to come back.")
    s("Just then the {hn} came along. \"I know the way,\" it said. \"You helped me, and now I will help you.\"", '"Follow me," said a voice. It was the {hn}! "I know every path here."')
    s("Step by step, the {hn} led {him} [safely on|the right way].", "So they went on together, slowly but safely.")
    s.p()
    s("At last they came to the top of a hill, and {h} stood still. There was the sea, blue and wide, without an end.", "And then {he} smelled salt, {he} heard a deep roar, and there it was: the sea!")
    s.o("The waves came and went, came and went, like someone breathing.", "Gulls cried above {him}, and the wind tasted of salt.", "{h} ran to the water and let the waves tickle {his} toes.", '"It is even bigger than I thought," {h} {whispered}.')
    s("{h} picked up {keep} to take home.", "On the beach {he} found {keep}, and {he} put it in {his} bag.")
    s("Back home, {he} put {thekeep} by {his} bed, and at night {he} could almost hear the waves.", "When {he} came home, {he} had much to tell, and everyone wanted to see {thekeep}.", "{h} often thought of the sea, but even more often {he} thought of the {hn}.")


def rescue(s: Story) -> None:
    babies = (("duckling", "mother duck", "had fallen into a deep hole"), ("chick", "hen", "was stuck behind a stack of wood"), ("fledgling", "mother bird", "had fallen out of its nest"), ("gosling", "mother goose", "was caught in a fishing net"),
              ("kid", "mother goat", "was caught in a thorn bush"), ("lamb", "mother sheep", "was caught in a thorn bush"), ("foal", "mare", "was stuck in the mud"))
    baby, parent, trap = s.pick(babies[:4] if s.animal else babies)
    tool = {"had fallen into a deep hole": ("a long board", "slid the board into the hole, and the {baby} walked up"), "was caught in a thorn bush": ("a pair of thick gloves", "put on the gloves and bent the thorns aside"), "was stuck behind a stack of wood": ("a bit of corn", "moved the logs one by one and held out the corn"),
            "had fallen out of its nest": ("a soft cap", "put the {baby} in the cap and climbed up to the nest"), "was caught in a fishing net": ("a small knife", "cut the net, thread by thread"), "was stuck in the mud": ("a strong rope", "tied the rope around the {baby} and pulled with all {his} might")}[trap]
    s.put(baby=baby, mother=parent, trap=trap, tool=tool[0], act=tool[1], dream="small, soft animals")
    s.theme, s.topic, s.lesson = "helping a small animal", "who saves a little {baby}", "Even the small can save someone smaller."
    s.title = ("The Little {Baby}", "{H} and the {baby}", "A Small Cry for Help", "{H} to the Rescue")
    s.facts += [("Which animal needed help?", "A little {baby} needed help."), ("What did {h} use to help?", "{H} used {tool}.")]
    opening(s)
    s("{oneday}, {he} was [walking by the stream|coming home|looking for flowers] when {he} heard a small cry.", "{oneday}, {h} heard a thin little voice. It came from [the field|behind the hedge|the other side of the wall].")
    weather(s)
    s("{h} followed the sound. A little {baby} {trap}.", "{He} looked around and found a {baby}. The poor thing {trap}.")
    s.o("It was shaking with fear.", "Its eyes were big and round.", "It was so small that it hardly had a voice.")
    s.p()
    s('"Do not be afraid," {h} {whispered}. "I will [get you out|not hurt you|set you free]."', '"Wait, little one," said {h}. "I am here now."')
    s("{He} tried to reach it with {his} {hands}, but [{his} arms were too short|it did not work|{he} could not get close enough].", "{He} stretched out {his} {hands}, but the {baby} was too far away.")
    s.o("{He} called for help, but nobody was near.", "The {baby} cried even louder.", '"If only I were bigger," {he} thought.')
    s("Then {he} ran to {e}. \"Please, may I borrow {tool}?\" {he} {asked}.", "{He} ran home as fast as {he} could and came back with {tool}.", '"I need {tool}!" {h} thought, and {he} ran to find one.' if not s.slots["tool"].startswith(("a pair", "a bit")) else "{h} thought for a moment. Then {he} ran and fetched {tool}.")
    s("Carefully {he} {act}.", "{h} took a deep breath. Then {he} {act}.")
    s.o("It took a long time, and {his} arms ached.", "Once {he} slipped, but {he} did not let go.", '"Nearly there," {he} said softly.')
    s("At last the {baby} was free.", "And then it was done: the {baby} was safe.")
    s.p()
    s("The {mother} came up and rubbed {his} cheek with her head.", "Close by, the {mother} was calling. The {baby} hurried to her.", "{h} carried the {baby} to the {mother}, who had been looking for it everywhere.")
    s.o('"You were very brave," said {his} {parent} that evening.', "The {baby} looked back once, as if it wanted to say thank you.", "{h} stood there and watched until they were out of sight.")
    s("From then on, whenever {h} came by, the little {baby} came to greet {him}.", "{h} was not the biggest in the {town}, but that day {he} felt as tall as a tree.", "And {h} knew that you do not have to be big to help.")
    goodnight(s)


def seed(s: Story) -> None:
    plant, end = s.pick((("sunflower", "a sunflower as tall as the roof"), ("pumpkin", "a pumpkin as big as a wheelbarrow"), ("bean", "a bean plant full of long green beans"), ("apple tree", "a small apple tree with three red apples"), ("melon", "a round, sweet melon"), ("rose", "a rose bush covered in flowers")))
    s.put(plant=plant, end=end, pot=s.pick(("in a clay pot", "behind the house", "beside the wall", "in the sunniest corner of the garden")), danger=s.pick(("a snail wanted to eat the leaves", "the sun was so hot that the leaves hung down", "a cold wind came in the night", "a strong wind bent the stem")), dream="green leaves")
    s.put(cure={"a snail": "carried the snail to a patch of clover", "the sun": "gave it water every evening and made a roof of cloth for it", "a cold": "covered it with {his} own blanket", "a strong": "tied the stem to a stick"}[" ".join(s.slots["danger"].split()[:2])])
    s.theme, s.topic, s.lesson = "planting a seed", "who plants a {plant} seed", "Good things need time."
    s.title = ("The Little Seed", "{H} Plants a Seed", "The {Plant}", "Wait and See")
    s.facts += [("What did {h} plant?", "{H} planted a {plant} seed."), ("Where did {h} plant it?", "{H} planted it {pot}.")]
    opening(s)
    s("{oneday}, {ea} gave {him} a tiny seed.", "{oneday}, {h} found a single seed in {his} pocket." if not s.animal else "{oneday}, {h} found a single seed on the path.")
    s('"What will it be?" {asked} {h}. "Plant it and see," said {e}.', '"It looks like nothing at all," said {h}. "Give it time," said {e}.')
    s("So {h} planted it {pot} and gave it water.", "{He} made a small hole {pot}, put the seed in and covered it with earth.")
    s.p()
    s("The next morning {he} ran to look. There was nothing.", "Every morning {he} looked. Every morning there was only brown earth.", "{He} waited one day, two days, three days. Nothing happened.")
    s.o('"Perhaps it is asleep," {said} {f}.', "{h} wanted to dig it up to see what was wrong. \"No,\" said {e}, \"it is working under the ground.\"", "{h} sang to it, and {he} told it stories.", '"Hurry up, little seed," {he} {whispered}.')
    s("Then, after [a week|ten days|many days], a tiny green tip came up.", "And then, one morning, {he} saw two small green leaves.")
    s('"It is alive!" {cried} {h}.', "{h} was so {glad} that {he} ran to tell everyone.", "{h} lay down on {his} tummy and looked at it for a whole hour.")
    s.p()
    s("But then {danger}.", "The plant grew and grew. But one day {danger}.")
    s("{h} did not wait. {He} {cure}.", '"I will look after you," said {h}, and {he} {cure}.', "{h} thought about it, and then {he} {cure}.")
    s.o("In the morning the little plant stood straight again.", "And the plant grew stronger than before.", "{e} nodded. \"You are a real gardener,\" {ehe} said.")
    s("Weeks went by. By the end of summer there was {end}.", "Spring became summer, and there it stood: {end}.") if plant != "apple tree" else s("Three years went by, and there it stood: {end}.", "Summers and winters went by, and one autumn there was {end}.")
    s.p()
    s.o("The whole {town} came to see it.", "{f} could hardly believe it. \"And it all came from one tiny seed?\" {fhe} {asked}.", '"How did you do it?" {asked} {f}. "I waited," said {h}, "and I watered it."')
    s("{h} saved the new seeds and gave one to each of {his} friends.", "{h} learned that good things need time, and a little water too.", "And {h} kept one new seed for the next year.", "So {h} and {e} sat down beside it and were {glad} together.")
    goodnight(s)


def snow_day(s: Story) -> None:
    nose = s.pick(("carrot", "pine cone", "twig", "radish"))
    s.put(nose=nose, o="scarf", c=s.pick(w.COLOURS), hatx=s.pick(("an old bucket", "a straw hat", "a flower pot", "a cooking pot")), eyes=s.pick(("two black stones", "two buttons", "two nuts", "two bits of coal")), name=s.pick(("Mr. Frost", "Snowflake", "Icy", "Winter", "Mr. White")), dream="snow and more snow")
    s.object = "scarf"
    s.theme, s.topic, s.lesson = "a snowy day", "who builds a snowman", "Some things melt, but the memory stays."
    s.title = ("The Snowman", "A Snowy Day", "{H} in the Snow", "The {c} scarf")
    s.facts += [("What colour was the scarf?", "The scarf was {c}."), ("What was the nose of the snowman?", "The nose was a {nose}.")]
    opening(s)
    s("One winter morning {h} looked out, and everything was white.", "One morning {h} woke up and it was very quiet. Snow had fallen in the night.", '"Snow!" {cried} {h} one cold morning. "It has snowed!"')
    s("{He} put on {his} {c} scarf and ran out to find {f}.", "{He} wrapped {his} {c} scarf around {his} neck and met {f} outside.")
    s.o("Their breath made little clouds in the air.", "The snow crunched under their feet.", "Every twig wore a little white cap.", "They threw snowballs until they were both white.")
    s.p()
    s('"Let us build a snowman," said {f}.', '"Shall we make a snowman?" {asked} {h}.')
    s("They rolled a big ball, a middle ball and a small ball.", "They rolled the snow into three balls. The first was so heavy that they had to push it together.")
    s("But the head fell off again and again, because the snow was too dry.", "They put the head on top, but it rolled down. They tried once more, and it rolled down again.")
    s('"A little water will make it stick," said {h}. And it did!', '"Wait," said {f}. "We must make a flat place on top first." That was the answer.', "{h} pressed wet snow all around the neck, and at last the head stayed on.")
    s.o("They took {eyes} for the eyes and a {nose} for the nose.", "A {nose} became the nose, and {eyes} became the eyes.")
    s("For a hat they took {hatx}.", "On the head they put {hatx}.")
    s.p()
    s("But the snowman looked cold. {h} thought for a moment. Then {he} took off {his} {c} scarf and gave it to him.", '"He is freezing," said {h}, and {he} wrapped {his} own {c} scarf around the snowman.')
    s('"We will call him {name}," said {f}.', '"Good evening, {name}," said {h} and bowed.')
    s.o("At night the moon shone on the snowman, and it looked as if he smiled.", "{His} {parent} brought hot [cocoa|milk|soup], and they drank it in the snow.", "Every day they said good morning to {name}.")
    s("Then the sun grew warm, and one day only {hatx}, a {nose} and a {c} scarf were left on the grass.", "In spring {name} grew smaller and smaller, until only the {c} scarf lay on the wet grass.")
    s('"Where is he now?" {asked} {f}. "In the stream and in the clouds," said {h}. "He will come back next winter."', "{h} was a little sad. \"He is only travelling,\" said {his} {parent}. \"Snow always comes back.\"")
    s("{h} washed the {c} scarf and kept it for the next snowman.", "And when it rained that week, {h} waved to the clouds, just in case.", "{h} put the scarf in a drawer and waited for the first snow.")


def bridge(s: Story) -> None:
    s.put(mat=s.pick(("boards", "logs", "planks", "strong branches")), fix=s.pick(("rope", "nails", "ivy", "thick string")), other=s.pick(("the best berries grew", "{his} friend {f} lived", "the school stood", "the sweet apples grew")), animal2=s.pick(("a goat", "a duck", "a pony", "a sheep")), dream="bridges over wide rivers")
    s.theme, s.topic, s.lesson = "building a bridge", "who builds a bridge", "Together we can build what one alone cannot."
    s.title = ("The Little Bridge", "{H} Builds a Bridge", "Over the Stream", "The Bridge")
    s.facts += [("What was the bridge made of?", "It was made of {mat} and {fix}."), ("Who helped {h}?", "{F} and {e} helped {him}.")]
    opening(s)
    s("Near {his} home ran a fast stream, and on the other side {other}.", "There was a stream nearby. On the far side {other}, but there was no bridge.")
    s.o("To get across, {he} had to walk a long way around.", "In summer one could jump across, but now the water was too high.", '"If only there were a bridge," {he} often said.')
    s.p()
    s("{oneday}, {h} said, \"I will build a bridge.\"", "{oneday}, {he} had had enough of the long way. \"I will build a bridge,\" {he} said.")
    weather(s)
    s("{He} laid one long branch over the water. But when {he} stepped on it, it broke, and splash! {h} was wet from head to toe.", "First {he} threw stones into the water, but the stream carried them away.", "{He} laid a thin board across, but it bent in the middle and slid into the water.")
    s.o("{animal2} watched and seemed to laugh.", "{h} sat on the bank and wrung out {his} wet tail." if s.animal and s.kind not in ("hamster", "bear", "panda", "hedgehog", "mole", "rabbit", "hare") else "{h} sat on the bank and waited until {he} was dry.", '"That was not such a good idea," {he} said.')
    s.p()
    s('"What are you doing?" {asked} {f}. {h} told {fhim}. "I will bring {mat}," said {f}.', "{f} saw it from the hill and came down. \"Two are stronger than one,\" {fhe} said, and {fhe} brought {mat}.")
    s("Then {e} came by. \"You need {fix} to hold it together,\" {ehe} said, \"and I have some at home.\"", '"{mat} alone are not enough," said {e}. "Take my {fix} too."')
    s("They worked for [two|three|four] days. {f} carried, {h} built, and {e} [gave advice|held everything straight].", "{h} put the {mat} in place, {f} held them, and {e} tied everything fast with {fix}." if s.slots["fix"] != "nails" else "{h} put the {mat} in place, {f} held them, and {e} drove in the nails.")
    s.o("At noon they shared bread and [cheese|pears|soup].", "When it rained, they sat under the {tree} and made plans.", "Once they had to take it all apart and start again.")
    s("At last the bridge was finished. Who would cross it first?", "Then it stood there, small but strong.")
    s.p()
    s("{h} took one step, then another. The bridge held!", '"You first," said {f}. {h} walked slowly to the middle and jumped. Nothing moved.')
    s('"It holds! It holds!" {cried} {h}.', "{f} clapped, and {e} nodded slowly.", "{h} laughed and ran across [three|five|ten] times.")
    s.o("The next day {animal2} walked over it too, as if the bridge had been made just for her.", "Soon everyone in the {town} used the little bridge.", "They cut three small letters into the rail, one for each of them.")
    s("Alone, {h} had only got wet feet. With friends, {he} had built a bridge.", "And whenever {h} crossed the bridge, {he} thought of {his} friends.", "{h} learned that it is no shame to need help.")
    goodnight(s)


def star(s: Story) -> None:
    s.put(o="star", c=s.pick(("little", "small", "tiny", "silver")), place=s.pick(("in the {tree}", "in the pond", "in the long grass", "on the roof", "among the {flowers}")), wish=s.pick(("to go home", "to see my sisters again", "to shine in the sky again")), way=s.pick(("the tallest hill", "the top of the {tree}", "the old tower", "the highest roof")), helper=s.pick(("an owl", "a kind wind", "a wild goose", "a white heron", "an eagle")), dream="the night sky")
    s.object = "star"
    s.theme, s.topic, s.lesson = "a fallen star", "who finds a fallen star", "If you love something, help it to be where it belongs."
    s.title = ("The Fallen Star", "{H} and the Star", "The {C} Star", "A Star in the Night")
    s.facts += [("Where did the star fall?", "The star fell {place}."), ("Who carried the star up?", "{Helper} carried it up.")]
    s.put(helpern="the " + s.slots["helper"].split(" ", 1)[1])
    opening(s)
    s("One night {he} saw a light fall from the sky.", "One clear night, something bright fell down, right near {his} home.", "One evening a star fell out of the sky.")
    s("{h} ran out and found a {c} star {place}.", "{He} crept outside. There, {place}, lay a {c} star.")
    s.o("It was [warm|cool] and it glowed like a candle.", "It was no bigger than an apple.", "Its light was weak, and it trembled.")
    s.p()
    s('"I fell," said the star. "I wish {wish}."', '"Can you help me?" the star {asked}. "I want {wish}."')
    s("{h} would have liked to keep it. {He} had never owned anything so beautiful.", '"Could you not stay with me?" {asked} {h}. The star grew pale. "I cannot shine down here," it said.')
    s("So {h} took the star in {his} {hands} and threw it up as high as {he} could. It fell back into the grass.", "First {h} stood on a chair and held the star up, but the sky was much too far away.")
    s.o("Then {he} tried with [a ladder|a long stick|a kite], but even that did not reach far enough.", "{f} came and thought about it too. \"We must go higher,\" said {f}.", "With every hour the star grew dimmer.")
    s.p()
    s("\"We must go up to {way},\" said {h}, and {he} wrapped the star in a cloth.", "Then {he} carried it all the way to {way}.")
    s.o("The way was long and dark, but the star gave {him} light.", "{His} legs were tired, but {he} did not stop.", "The star told {him} about the moon while they went.")
    s("But even from there the sky was too far. Then {helper} came by.", "Up there {h} met {helper}.")
    s('"Give it to me," said {helpern}. "I can go higher than you."', '"Please, can you take it home?" {asked} {h}. "I can," said {helpern}.')
    s("Up and up they went, until the star was only a tiny point. Then it was back in its place.", "The star rose higher and higher, and then the gap in the sky was closed.")
    s.p()
    s.o('"Thank you, {hv}!" it called from far above.', "It shone brighter than all the others.", "{h} waved until {his} arm was tired.")
    s("Every evening since then, one star twinkles three times, and {h} knows that it is saying hello.", "{h} had no star of {his} own, but {he} had a friend in the sky.", "{h} was a little sad and very happy, both at the same time.")


def tiny_found(s: Story) -> None:
    thing(s)
    s.put(where=s.pick(("under a bush", "on the path", "by the pond", "beside the gate", "near the {tree}", "on the old bridge")))
    s.theme, s.topic, s.lesson = "being honest", "who finds a {c} {o}", "Give back what is not yours."
    s.title = ("The {c} {o}", "{H} Finds a {O}", "The Honest Finder")
    s.facts.append(("Where was the {o}?", "The {o} was {where}."))
    opening(s)
    s("{oneday}, {he} found a {c} {o} {where}.", "{oneday}, a {c} {o} lay {where}, and {h} picked it up.")
    s("It was [so pretty|so fine|so lovely] that {he} wanted to keep it.", "{h} would have liked to keep it.", '"Finders keepers," {he} thought at first.')
    s("But then {he} saw {fa}, who was looking [everywhere|in the grass|under every leaf] with tears in {fhis} eyes.", "But not far away sat {fa}. \"I have lost my {o},\" {fhe} [sobbed|said sadly].")
    s('"Is this yours?" {asked} {h} and held out the {o}.', "{h} held out the {o}. \"I found it {where},\" {he} said.")
    s('"My {c} {o}! Thank you!" {cried} {f}.', "{f} laughed and cried at the same time. \"Thank you, {hv}!\"")
    s("{h} went home without the {o}, but with a new friend.", "From that day on, {h} and {f} played together every [day|afternoon].", "{h} felt better than if {he} had kept it.")


def tiny_rain(s: Story) -> None:
    s.put(o="umbrella", c=s.pick(w.COLOURS))
    s.object = "umbrella"
    s.theme, s.topic, s.lesson = "a rainy day", "with a {c} umbrella", "There is room for two under one umbrella."
    s.title = ("The {c} umbrella", "{H} in the Rain", "Room for Two")
    s.facts.append(("What colour was the umbrella?", "The umbrella was {c}."))
    opening(s)
    s("{oneday}, it began to rain, and {h} opened {his} {c} umbrella.", "{oneday}, dark clouds came, and soon it was raining hard. {h} was glad about {his} {c} umbrella.")
    s("[At the corner|Under the {tree}|By the gate] stood {fa}, wet [from head to toe|to the skin].", "Then {he} saw {fa}, who had no umbrella and was shaking with cold.")
    s('"Come under my umbrella," said {h}. "There is room for two."', '"Would you like to share my umbrella?" {asked} {h}.')
    s("They walked home together and [jumped over every puddle|counted the puddles|sang a song about rain].", "Side by side they walked through the rain, and {f} told funny stories all the way.")
    s("When the sun came out, they were [still talking|sorry that the rain was over|friends].", "The rain stopped, but they walked on together.")
    s("{h} had never liked rain before, but now {he} did.", "\"I hope it rains tomorrow too,\" said {f}, and they both laughed.", "Since then {h} thinks that a {c} umbrella is best with two under it.")


def tiny_tower(s: Story) -> None:
    s.put(mat=s.pick(("stones", "blocks", "boxes", "logs", "bricks", "cups")), many=s.pick(("three", "four", "five", "six")))
    s.theme, s.topic, s.lesson = "not giving up", "who builds a tower", "Start with a strong base, and try again."
    s.title = ("The Tower", "{H} Builds a Tower", "Try Again")
    s.facts.append(("What was the tower made of?", "The tower was made of {mat}."))
    opening(s)
    s("{oneday}, {h} wanted to build a tower of {mat}.", "{oneday}, {h} said, \"I will build the tallest tower of {mat} in the {town}.\"")
    s("It grew and grew, but then it [wobbled and fell down|fell over with a crash|came tumbling down].", "It was almost done when [the wind blew it over|it began to lean and fell].")
    s("{h} tried {many} times, and it fell {many} times.", "{h} was angry and [stamped {his} foot|wanted to stop].")
    s('"Make the bottom wider," said {his} friend {f}.', "{f}, {his} friend, looked at it. \"It needs a wider base,\" {fhe} said.")
    s("So {h} began again, slowly and carefully, with a wide base.", "{h} tried it that way, and {f} helped {him}.")
    s("This time the tower stood, [taller than {h}|as tall as {f}|tall and straight], and {h} was {glad}.", "And look! The tower did not fall. {h} and {f} clapped.")
    s("A strong start makes a strong tower.", "{h} learned that it is worth trying once more.", "They called it the Tower of {n} and {f}." if s.named else "They were very proud of their tower.")


def tiny_bird(s: Story) -> None:
    s.theme, s.topic, s.lesson = "helping a bird", "who helps a little bird", "Kindness comes back to you."
    s.title = ("The Hungry {Bird}", "{H} and the {bird}", "A Song in Spring")
    s.put(bird=s.pick(("robin", "blackbird", "wren", "sparrow", "finch")), food=s.pick(("crumbs", "seeds", "a piece of bread", "some oats", "a handful of corn")))
    s.facts.append(("What kind of bird was it?", "It was a {bird}."))
    opening(s)
    s("One cold winter day, {h} saw a {bird} in the snow.", "It was winter, and {h} saw a small {bird} that could find nothing to eat.")
    s("It was [hungry and weak|cold and hungry|too tired to fly].", "Its feathers were puffed up, and it did not sing.")
    s("{h} brought {food} and put it on the [window|step|wall]." if s.slots["food"] not in ("crumbs", "seeds", "some oats") else "{h} brought {food} and put them on the [window|step|wall].")
    s("{He} [did this|brought more] every day, [even when it stormed|all winter long|until the snow was gone].", "The next day {he} came again, and the day after that too.")
    s("In spring, {h} woke up to a [beautiful|bright|clear] song.", "When the first flowers came out, {h} heard a song outside.")
    s("It was the {bird}, singing just for {him}.", "The {bird} sat in the {tree} and sang its thanks.", "\"That is my {bird}!\" {cried} {h}. And so it was.")


TINY: tuple[Callable[[Story], None], ...] = (tiny_found, tiny_rain, tiny_tower, tiny_bird)


PLOTS: tuple[Callable[[Story], None], ...] = (
    lost_thing, new_friend, sharing, storm, learning, secret_garden, mistake, race, broken_toy, birthday_gift, dark,
    neighbour, treasure, market, baking, sea_journey, rescue, seed, snow_day, bridge, star)


def tell(rng: random.Random, short: bool = False) -> Story:
    """A finished story with its facts."""
    story = Story(rng, short)
    cast(story)
    slots = story.slots
    name = slots["n"] = slots["h"]
    if slots["hnoun"] != slots["fnoun"]:
        slots["h"] = (name,) * 6 + (slots["hk"],)  # now and then "the girl" or "the small fox"
    story.pick(TINY if short and rng.random() < 0.6 else PLOTS)(story)
    slots["h"] = name
    return story


SUBJECT = {True: ("{k} named {h}", "{k} called {h}", "{k}", "{k}"), False: ("{k}", "{size_k}")}
REQUESTS = (
    "Tell me a story about {who} {topic}.", "Write a story about {who} {topic}.", "Can you tell me a story about {who} {topic}?",
    "Please write a story about {who} {topic}.", "Could you tell me a story about {who} {topic}, please?",
    "I would like a story about {who} {topic}.", "Make up a story about {who} {topic}.", "I want to hear a story about {who} {topic}.",
    "[Hi! |Hello! |]Please tell me a story about {who} {topic}.", "Write a tale about {who} {topic}.", "Do you know a story about {who} {topic}?",
    "Write a little story for children about {who} {topic}.", "tell me a story about {who} {topic}", "Give me a story about {who} {topic}.")
THEME_REQUESTS = (
    "Tell me a story about {theme}.", "Write a story about {theme}.", "Can you write a story about {theme} with {who} in it?",
    "Please tell me a story about {theme}.", "I need a story about {theme} for my [son|daughter|class|little brother|little sister].",
    "Write a children's story about {theme}.", "Do you have a story about {theme}?", "A story about {theme}, please.",
    "Write a story about {who}. It should be about {theme}.")
OPEN_REQUESTS = (
    "Tell me a story.", "Can you tell me a bedtime story?", "Tell me a bedtime story, please.", "Please tell me a story.", "Write a story.",
    "I cannot sleep. Can you tell me a story?", "Tell me something nice.", "Can you tell me a story?", "Write a story about {who}.", "Tell me a story about {who}.",
    "Can you tell me a story about {who}?", "Tell me a bedtime story about {who}.", "I am bored. Tell me a story.", "Write a story with a happy ending.",
    "Tell me about {who}.")
OBJECT_REQUESTS = (
    "Write a story with {who} and a {object}.", "Tell me a story with a {object} in it.", "Tell me a story about {who} and a {object}.",
    "Please write a story about {who} and a {object}.", "Can you write a story with these words: {kindword}, {object}?", "Make up a story with {who} and a {object}.")
CONTINUE = ("Continue this story: {start}", "How does this story go on? {start}", "Finish this story: {start}", "What happens next? {start}", "Please continue: {start}")
SHORTEN = ((" a story", " a short story"), (" a tale", " a short tale"), (" a little story", " a very short story"), (" a bedtime story", " a short bedtime story"),
           (" a children's story", " a short children's story"))
LESSONS = ("What is the lesson of the story?", "What can we learn from this story?", "What does the story teach us?")


def request(s: Story) -> str:
    """What a user could have asked to get this story."""
    rng, slots = s.rng, s.slots
    slots["k"] = "a " + s.kind
    slots["size_k"] = "a " + (s.size or "little ") + s.kind
    slots["kindword"] = s.kind
    slots["object"] = s.object
    slots["theme"] = s.theme
    slots["topic"] = s.topic
    slots["who"] = fill(s.pick(SUBJECT[s.named]), slots, rng)
    roll = rng.random()
    if s.object and roll < 0.25:
        form = s.pick(OBJECT_REQUESTS)
    elif roll < 0.65:
        form = s.pick(REQUESTS)
    elif roll < 0.8:
        form = s.pick(THEME_REQUESTS)
    else:
        form = s.pick(OPEN_REQUESTS)
    text = fill(form, slots, rng)
    if s.short:
        for plain, short in SHORTEN:
            if plain in text:
                text = text.replace(plain, short, 1)
                break
        else:
            text += " Keep it short."
    if form[0].islower():
        return polish("X " + text)[2:]
    return polish(text)


def answer_about(s: Story, pair: tuple[str, str]) -> tuple[str, str]:
    return polish(fill(pair[0], s.slots, s.rng)), polish(fill(pair[1], s.slots, s.rng))


def chat_document(rng: random.Random) -> str:
    short = rng.random() < 0.3
    s = tell(rng, short)
    text = s.text()
    if not short and rng.random() < 0.08:
        start, _, rest = text.partition("\n\n")
        return conversation([(s.pick(CONTINUE).replace("{start}", start), rest)])
    pairs = [(request(s), text)]
    if rng.random() < 0.3:
        for fact in rng.sample(s.facts, min(len(s.facts), 1 + int(rng.random() * 2))):
            pairs.append(answer_about(s, fact))
        if rng.random() < 0.3:
            pairs.append((s.pick(LESSONS), s.lesson))
    return conversation(pairs)


def title_of(s: Story) -> str:
    text = polish(fill(s.pick(s.title), s.slots, s.rng))
    small = {"as", "at", "a", "an", "the", "and", "of", "to", "in", "for", "is", "with"}
    parts = text.split(" ")
    return " ".join(p if i and p.lower() in small and p[0].islower() else p[0].upper() + p[1:] for i, p in enumerate(parts))


def plain_document(rng: random.Random) -> str:
    s = tell(rng, rng.random() < 0.08)
    text = s.text()
    if rng.random() < 0.35:
        text = title_of(s) + "\n\n" + text
    roll = rng.random()
    if roll < 0.06:
        question, answer = answer_about(s, s.pick(s.facts))
        text += f"\n\nQuestion: {question}\nAnswer: {answer}"
    elif roll < 0.09:
        text += "\n\nLesson: " + s.lesson
    return text + "\n"


def documents(seed: int, count: int) -> Iterator[str]:
    """Yields count stories: about 55 % plain text, the rest conversations."""
    rng = random.Random(seed)
    for _ in range(count):
        yield plain_document(rng) if rng.random() < 0.55 else chat_document(rng)
