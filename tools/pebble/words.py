"""Word lists and the small template language of the corpus generators.

A template is text with {slots} and [choices|like|these]; choices nest and may
be empty.  A slot is looked up in a dictionary; a tuple there means "any of
these", and a slot written with a capital ({He}) capitalises its value.
polish() then repairs a/an, spaces and the capitals that open sentences.
"""

import random
import re

GIRLS = ("Mia", "Lily", "Anna", "Rosa", "Ella", "Nora", "Clara", "Ivy", "Tess", "Maya", "Lucy",
         "Zoe", "Ruby", "Hana", "Greta", "Sara", "Amy", "Leila", "Nina", "Polly", "Emma", "June",
         "Daisy", "Kate", "Olive", "Wren", "Alma", "Mina", "Stella", "Freya", "Alice", "Beth", "Carla", "Dora", "Edith", "Fiona", "Gemma", "Heidi", "Isla",
         "Jane", "Kira", "Laura", "Marta", "Nell", "Paula", "Rita", "Sofia", "Tara", "Vera", "Yara", "Elsa", "Lena")
BOYS = ("Tom", "Ben", "Leo", "Max", "Sam", "Finn", "Oscar", "Noah", "Jack", "Theo", "Hugo", "Omar",
        "Eli", "Luca", "Peter", "Milo", "Adam", "Ravi", "Emil", "Toby", "Daniel", "Felix", "Arlo",
        "Jonas", "Paul", "Karl", "Henry", "Amir", "Otto", "Nils", "Aaron", "Boris", "Colin", "David", "Erik", "George", "Harry", "Ivan", "Jonah",
        "Kurt", "Louis", "Nick", "Owen", "Pablo", "Rory", "Simon", "Tim", "Viktor", "Yusuf")
PET_SHE = ("Hazel", "Poppy", "Clover", "Willow", "Dot", "Fern", "Honey", "Maple", "Penny", "Pearl",
           "Tilly", "Bluebell", "Misty", "Rosie", "Juniper", "Luna", "Flora", "Biscuit", "Nutmeg", "Tansy", "Minty", "Snowdrop", "Velvet", "Peaches", "Lark",
           "Ginger", "Mallow", "Bonnie", "Opal", "Daffy", "Ember", "Amber", "Bella", "Coco", "Dewdrop", "Echo", "Fluff", "Gigi", "Holly", "Iris",
           "Jasmine", "Kiki", "Lulu", "Mabel", "Nettie", "Olga", "Pansy", "Ruffle", "Sable", "Trudy", "Una", "Violet", "Winnie")
PET_HE = ("Pip", "Bramble", "Rusty", "Button", "Moss", "Acorn", "Barley", "Bruno", "Tumble", "Chip",
          "Dusty", "Rowan", "Basil", "Pepper", "Scout", "Twig", "Fidget", "Sorrel", "Bobbin", "Bracken", "Cricket", "Thorn", "Flint", "Ash", "Ziggy",
          "Muddy", "Sprout", "Pickle", "Toffee", "Hobb", "Nibbles", "Patch", "Quill", "Archie", "Bolt", "Caspar", "Digger", "Elmo", "Fergus", "Gizmo", "Hector", "Indigo", "Jolly",
          "Kip", "Loki", "Monty", "Norbert", "Otis", "Pablo", "Rollo", "Smudge", "Tucker", "Ulf", "Vince", "Wally")
OLD_SHE = ("Mrs. Bell", "Mrs. Reed", "Mrs. Hill", "Mrs. Green", "Grandma Rose", "Aunt Olga", "Mrs. Finch",
           "Mrs. Lane", "Granny Smith", "Mrs. Brook", "Aunt May", "Mrs. Stone", "Mrs. Baker", "Mrs. Wood", "Mrs. Marsh", "Mrs. Penn", "Aunt Lotte",
           "Grandma Ida", "Mrs. Ford", "Mrs. Dale", "Mrs. Winter", "Aunt Ruth", "Mrs. Moss", "Mrs. Webb")
OLD_HE = ("Mr. Bell", "Mr. Reed", "Mr. Hill", "Mr. Green", "Grandpa Joe", "Uncle Ned", "Mr. Finch",
          "Mr. Lane", "Mr. Potter", "Mr. Brook", "Uncle Fred", "Mr. Stone", "Mr. Wood", "Mr. Marsh", "Mr. Penn", "Uncle Lars",
          "Grandpa Gus", "Mr. Ford", "Mr. Dale", "Mr. Winter", "Uncle Bert", "Mr. Moss", "Mr. Webb")
OLD_PETS_SHE = ("Old Sage", "Old Heather", "Old Marigold", "Granny Thistle", "Aunt Primrose", "Old Myrtle", "Old Nettle", "Granny Fig",
                "Aunt Sedge", "Old Lavender", "Granny Reed", "Old Dahlia")
OLD_PETS_HE = ("Old Bristle", "Old Barnaby", "Grandpa Root", "Uncle Burr", "Old Gruff", "Old Jasper", "Old Barnacle",
               "Uncle Knot", "Old Hobnail", "Grandpa Birch", "Old Tobias", "Uncle Stump", "Old Rufus")

# Animals that walk, carry and hold things in stories.
ANIMALS = ("fox", "rabbit", "bear", "mouse", "hedgehog", "squirrel", "cat", "puppy", "badger", "otter",
           "mole", "raccoon", "beaver", "kitten", "hamster", "panda", "hare", "wolf")
OLD_ANIMALS = ("badger", "tortoise", "owl", "toad", "goat", "bear", "hare", "beaver", "goose", "donkey")
BIRDS = ("robin", "crow", "sparrow", "blackbird", "jay", "swallow", "magpie", "starling", "wren")

COLOURS = ("red", "blue", "green", "yellow", "purple", "orange", "white", "pink", "silver", "golden",
           "brown", "black")
TRAITS = {
    "curious": ("{He} [asked|had] questions about [everything|the sky, the stones and the rain|every little thing].",
                "{He} wanted to know [how everything worked|what was behind every door|why the wind blew]."),
    "shy": ("{He} often [hid behind {his} mother|looked at {his} feet] when [someone spoke|people spoke] to {him}.",
            "{He} spoke so softly that [others had to lean close|you had to listen hard]."),
    "cheerful": ("{He} [sang|hummed|whistled] from morning to night.",
                 "{He} could find something [nice|good] in even the [greyest|wettest|longest] day."),
    "brave": ("{He} was not afraid of [thunder|tall trees|deep water], or so {he} said.",
              "{He} liked to [climb|go] higher and [run|walk] farther than anyone else."),
    "clever": ("{He} liked [puzzles|riddles] and always had [a plan|an idea].",
               "When something was hard, {he} [sat down and thought about it|tried to think of a new way]."),
    "kind": ("{He} [always|often] saved the [last|biggest] [bite|piece] for somebody else.",
             "If someone was sad, {he} [noticed it first|sat down next to them]."),
    "busy": ("{He} was always [making|building|fixing] something.", "{He} could not sit still for [long|a minute]."),
    "dreamy": ("{He} liked to [lie in the grass and watch the clouds|look at the clouds and think].",
               "{He} often forgot [what time it was|where {he} was going]."),
    "careful": ("{He} always looked [twice|left and right] before {he} [jumped|did anything].",
                "{He} kept all {his} things [in neat rows|in a tidy box]."),
}
LIKES = ("to paint", "to sing", "to collect stones", "to read", "to climb", "to dance", "to dig in the garden",
         "to draw maps", "to pick berries", "to watch the stars", "to tell jokes", "to count things", "to cook",
         "to listen to the rain", "to run through the grass", "to build little houses", "to feed the birds",
         "to make paper boats", "to jump over puddles", "to look for shells", "to whistle", "to swim", "to plant flowers", "to make up songs",
         "to ask riddles", "to bake", "to sew", "to fish", "to roll down the hill", "to write letters", "to look at maps")

# Small things one can carry, lose, find and give.
LOSABLE = ("ball", "scarf", "hat", "bell", "whistle", "ribbon", "cup", "book", "button", "basket", "marble",
           "mitten", "blanket", "flute", "spoon", "key", "purse", "cap")
BREAKABLE = {
    "kite": ("the tail", "tore off"), "drum": ("the top", "split"), "boat": ("the mast", "snapped"),
    "wagon": ("one wheel", "came off"), "train": ("the chimney", "fell off"), "robot": ("one arm", "fell off"),
    "doll": ("one arm", "came loose"), "puppet": ("a string", "snapped"), "toy horse": ("one leg", "broke off"),
    "toy car": ("a wheel", "rolled off"), "music box": ("the lid", "cracked"), "windmill": ("a sail", "broke off"),
}
FRUITS = ("apples", "pears", "plums", "cherries", "berries", "peaches", "nuts", "strawberries", "figs")
BAKES = ("apple pie", "honey cake", "plum cake", "berry tart", "carrot cake", "nut bread", "pumpkin pie",
         "lemon cake", "cherry pie", "ginger cake", "pear tart", "oat bread")
FLOWERS = ("roses", "daisies", "tulips", "sunflowers", "poppies", "violets", "bluebells", "lilies", "marigolds")
TREES = ("oak", "apple tree", "willow", "pine", "chestnut tree", "birch", "cherry tree", "maple", "pear tree")

HOMES_CHILD = ("in a small house by the river", "in a village at the foot of a hill", "in a quiet town near the sea",
               "in a white house at the edge of the woods", "in a tall house in a busy town", "on a farm among green fields",
               "in a little cottage with a blue door", "in a village between two hills",
               "in a house with a round window", "in a small town by a lake", "at an old mill beside a stream",
               "in a [small|little|tall|white|yellow|narrow] [house|cottage] [by the river|near the sea|by the lake|on a hill|behind the church|next to a bakery]",
               "in a [quiet|small|sleepy|busy] [village|town] [by the river|near the sea|among the hills|under the mountains|in the south|in the north]")
HOMES_ANIMAL = ("in a cosy hole under an old oak", "in a green forest", "in a warm den beside a stream", "in a sunny meadow",
                "in a snug little house in the woods", "in a burrow at the edge of a field", "in a quiet valley",
                "in a hollow tree near a pond", "on a mossy bank by the river", "in a small den on a hill",
                "in a wood full of birch trees", "in a cosy nest of leaves under a hedge",
                "in a [snug|warm|dry|cosy|tidy] [den|burrow|hole|little house] [under a hedge|beside the stream|at the foot of a hill|among the ferns|under a pine]",
                "in a [deep|green|quiet|wide|sunny] [forest|valley|meadow|wood] [by the river|far from any road|under the mountains|near a lake]")

_TOKEN = re.compile(r"[\[\]|]|\{[^}]*\}|[^\[\]|{]+")
_CACHE: dict[str, list] = {}
_AN = re.compile(r"\b([Aa]) (?=[aeioAEIO](?!ne\b|nce\b)|u(?!ni|se|su)|U(?!ni)|hour|honest)")
_START = re.compile(r'((?:^|\n|[.!?] |[.]" )"?)([a-z])')
_SPACES = re.compile(r" {2,}")


def _parse(tokens: list[str], at: int, nested: bool) -> tuple[list, int]:
    """Options of a choice (or the single option of the whole text)."""
    options: list[list] = [[]]
    while at < len(tokens):
        token = tokens[at]
        at += 1
        if token == "[":
            inner, at = _parse(tokens, at, True)
            options[-1].append(inner)
        elif token == "]" and nested:
            return options, at
        elif token == "|" and nested:
            options.append([])
        elif token[0] == "{":
            key = token[1:-1]
            low = key[0].lower() + key[1:]
            options[-1].append((low, key != low))
        else:
            options[-1].append(token)
    if nested:
        raise ValueError("unclosed choice in template")
    return options, at


def _render(parts: list, slots: dict, rng: random.Random, out: list[str]) -> None:
    for part in parts:
        kind = type(part)
        if kind is str:
            out.append(part)
        elif kind is tuple:
            value = slots[part[0]]
            if type(value) is tuple:
                value = value[int(rng.random() * len(value))]
            if "{" in value or "[" in value:
                value = fill(value, slots, rng)
            out.append(value[0].upper() + value[1:] if part[1] else value)
        else:
            _render(part[int(rng.random() * len(part))], slots, rng, out)


def fill(template: str, slots: dict, rng: random.Random) -> str:
    """The template with every choice made and every slot filled."""
    parts = _CACHE.get(template)
    if parts is None:
        parts = _parse(_TOKEN.findall(template), 0, False)[0][0]
        _CACHE[template] = parts
    out: list[str] = []
    _render(parts, slots, rng, out)
    return "".join(out)


def polish(text: str) -> str:
    """Repairs articles, doubled spaces and sentence capitals."""
    text = _SPACES.sub(" ", text).replace(" ,", ",").replace(" .", ".")
    text = _AN.sub(r"\1n ", text)
    return _START.sub(lambda m: m.group(1) + m.group(2).upper(), text)


def article(noun: str) -> str:
    """The noun with a or an before it."""
    return polish("a " + noun)[0].lower() + polish("a " + noun)[1:]
