"""Question generator: sums, simple facts, words and small talk.

Most documents are ChatML conversations of one to three exchanges; about a
quarter are plain sheets (facts, sums, questions with answers).  Every answer
is computed or taken from the tables below.  documents() is deterministic.
"""

import random
from collections.abc import Iterator

from chat import conversation
from words import BOYS, GIRLS, article, polish

Pair = tuple[str, str]

CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid", "Portugal": "Lisbon", "England": "London",
    "Ireland": "Dublin", "Austria": "Vienna", "Switzerland": "Bern", "Norway": "Oslo", "Sweden": "Stockholm", "Denmark": "Copenhagen",
    "Finland": "Helsinki", "Poland": "Warsaw", "Greece": "Athens", "Hungary": "Budapest", "Belgium": "Brussels", "Russia": "Moscow",
    "Japan": "Tokyo", "China": "Beijing", "India": "New Delhi", "Egypt": "Cairo", "Canada": "Ottawa", "Mexico": "Mexico City",
    "Brazil": "Brasilia", "Argentina": "Buenos Aires", "Peru": "Lima", "Chile": "Santiago", "Australia": "Canberra", "Turkey": "Ankara",
    "Kenya": "Nairobi", "Cuba": "Havana", "Iceland": "Reykjavik", "Ukraine": "Kyiv", "Thailand": "Bangkok", "South Korea": "Seoul",
    "the United States": "Washington, D.C.", "Scotland": "Edinburgh", "Wales": "Cardiff", "Romania": "Bucharest"}
YOUNG = {"cat": "kitten", "dog": "puppy", "cow": "calf", "horse": "foal", "sheep": "lamb", "hen": "chick", "duck": "duckling", "goose": "gosling",
         "pig": "piglet", "bear": "cub", "frog": "tadpole", "goat": "kid", "lion": "cub", "kangaroo": "joey", "deer": "fawn", "swan": "cygnet",
         "butterfly": "caterpillar", "owl": "owlet", "elephant": "calf"}
SOUNDS = {"dog": "barks", "cat": "meows", "cow": "moos", "sheep": "bleats", "pig": "oinks", "horse": "neighs", "duck": "quacks", "lion": "roars", "bee": "buzzes",
          "frog": "croaks", "snake": "hisses", "owl": "hoots", "wolf": "howls", "mouse": "squeaks", "donkey": "brays", "hen": "clucks", "crow": "caws"}
LEGS = {"dog": 4, "cat": 4, "spider": 8, "ant": 6, "bee": 6, "bird": 2, "snake": 0, "horse": 4, "fish": 0, "hen": 2, "cow": 4, "beetle": 6, "duck": 2,
        "butterfly": 6, "elephant": 4, "frog": 4, "fly": 6, "worm": 0}
HOMES = {"bee": "a hive", "bird": "a nest", "rabbit": "a burrow", "fish": "water", "horse": "a stable", "bear": "a den", "spider": "a web", "pig": "a sty",
         "ant": "an anthill", "fox": "a den", "hen": "a henhouse", "squirrel": "a nest in a tree", "beaver": "a lodge", "mole": "a tunnel under the ground", "camel": "the desert",
         "penguin": "cold places near the sea", "whale": "the sea"}
FOODS = {"cow": "grass", "rabbit": "grass and leaves", "squirrel": "nuts and seeds", "cat": "meat and fish", "panda": "bamboo", "koala": "leaves", "horse": "grass and hay", "lion": "meat",
         "caterpillar": "leaves", "owl": "mice", "spider": "insects", "sheep": "grass", "giraffe": "leaves from tall trees", "wolf": "meat"}
COLOUR_OF = {"the sky on a clear day": "blue", "grass": "green", "snow": "white", "a ripe banana": "yellow", "a ripe tomato": "red", "a lemon": "yellow", "milk": "white", "coal": "black",
             "a carrot": "orange", "chocolate": "brown", "an elephant": "grey", "blood": "red", "a leaf in spring": "green", "a pumpkin": "orange", "salt": "white", "a flamingo": "pink", "a strawberry": "red"}
MIXES = {("red", "yellow"): "orange", ("blue", "yellow"): "green", ("red", "blue"): "purple", ("red", "white"): "pink", ("black", "white"): "grey"}
OPPOSITES = (("hot", "cold"), ("big", "small"), ("tall", "short"), ("fast", "slow"), ("happy", "sad"), ("day", "night"), ("up", "down"), ("open", "closed"), ("wet", "dry"),
             ("full", "empty"), ("light", "dark"), ("hard", "soft"), ("old", "young"), ("loud", "quiet"), ("early", "late"), ("clean", "dirty"), ("rich", "poor"),
             ("strong", "weak"), ("thick", "thin"), ("near", "far"), ("good", "bad"), ("first", "last"), ("inside", "outside"), ("left", "right"), ("begin", "end"),
             ("push", "pull"), ("asleep", "awake"), ("brave", "afraid"), ("sweet", "sour"), ("smooth", "rough"), ("win", "lose"), ("true", "false"), ("high", "low"), ("wide", "narrow"))
JOBS = {"baker": "bakes bread and cakes", "teacher": "helps children to learn", "doctor": "helps people who are ill", "farmer": "grows food and keeps animals", "carpenter": "makes things from wood",
        "tailor": "makes and mends clothes", "pilot": "flies planes", "cook": "makes meals", "gardener": "looks after plants", "painter": "paints pictures or walls", "dentist": "looks after teeth",
        "firefighter": "puts out fires", "fisherman": "catches fish", "nurse": "takes care of people who are ill", "sailor": "works on a ship", "postman": "brings letters", "shepherd": "looks after sheep",
        "plumber": "mends water pipes", "vet": "helps animals that are ill", "miller": "grinds grain into flour"}
TOOLS = {"hammer": "drive nails into wood", "saw": "cut wood", "spoon": "eat soup", "knife": "cut food", "broom": "sweep the floor", "needle": "sew", "pen": "write", "key": "open a lock", "umbrella": "stay dry in the rain",
         "ladder": "climb up to high places", "spade": "dig", "clock": "tell the time", "oven": "bake", "scissors": "cut paper", "brush": "paint or clean things", "kettle": "boil water", "map": "find the way", "thermometer": "measure how warm it is",
         "telescope": "look at the stars", "compass": "find north"}
SIDES = {"triangle": 3, "square": 4, "rectangle": 4, "pentagon": 5, "hexagon": 6, "octagon": 8}
BODY = {"see": "eyes", "hear": "ears", "smell": "nose", "taste": "tongue", "think": "brain", "walk": "legs", "chew": "teeth", "breathe": "lungs", "hold things": "hands"}
FROM = {"bread": "flour", "cheese": "milk", "butter": "milk", "paper": "wood", "glass": "sand", "wine": "grapes", "honey": "the nectar of flowers", "wool": "the coat of sheep", "jam": "fruit and sugar", "chocolate": "cocoa beans"}
GROUPS = {
    "fruit": ("apple", "pear", "banana", "plum", "cherry", "peach", "grape", "orange", "lemon"),
    "animal": ("dog", "cat", "horse", "fox", "rabbit", "cow", "bear", "mouse", "lion"),
    "vegetable": ("carrot", "potato", "onion", "cabbage", "leek", "turnip"),
    "colour": ("red", "blue", "green", "yellow", "purple", "brown"),
    "tool": ("hammer", "saw", "spade", "drill", "rake"),
    "vehicle": ("car", "bus", "train", "truck", "bicycle"),
    "bird": ("robin", "crow", "eagle", "sparrow", "swan", "owl"),
    "piece of furniture": ("chair", "table", "bed", "sofa", "shelf"),
    "musical instrument": ("drum", "piano", "violin", "trumpet", "guitar"),
    "flower": ("daisy", "tulip", "sunflower", "violet", "lily")}
RHYMES = (("cat", "hat", "bat", "mat"), ("dog", "log", "fog", "frog"), ("sun", "run", "fun", "bun"), ("tree", "bee", "see", "knee"), ("house", "mouse", "blouse"), ("moon", "spoon", "soon", "noon"),
          ("star", "car", "far", "jar"), ("cake", "lake", "snake", "rake"), ("ball", "wall", "tall", "fall"), ("night", "light", "kite", "bright"), ("king", "ring", "sing", "wing"), ("bear", "chair", "pear", "hair"),
          ("book", "cook", "hook", "look"), ("rain", "train", "chain", "plane"), ("goat", "boat", "coat", "note"), ("fox", "box", "socks", "rocks"), ("bed", "red", "head", "bread"), ("fish", "dish", "wish"))
PLURALS = {"cat": "cats", "dog": "dogs", "box": "boxes", "mouse": "mice", "child": "children", "foot": "feet", "tooth": "teeth", "man": "men", "woman": "women", "goose": "geese", "leaf": "leaves", "knife": "knives",
           "baby": "babies", "city": "cities", "sheep": "sheep", "fish": "fish", "tomato": "tomatoes", "wolf": "wolves", "bus": "buses", "dish": "dishes", "berry": "berries", "fox": "foxes", "house": "houses",
           "tree": "trees", "potato": "potatoes", "boy": "boys", "key": "keys", "shelf": "shelves", "cherry": "cherries", "watch": "watches"}
PAST = {"go": "went", "see": "saw", "eat": "ate", "run": "ran", "sing": "sang", "write": "wrote", "take": "took", "give": "gave", "come": "came", "find": "found", "make": "made", "swim": "swam", "fly": "flew", "buy": "bought",
        "bring": "brought", "think": "thought", "sleep": "slept", "drink": "drank", "fall": "fell", "know": "knew", "walk": "walked", "play": "played", "jump": "jumped", "help": "helped", "carry": "carried", "stop": "stopped"}
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December")
SPELL = ("apple", "house", "water", "friend", "garden", "school", "butter", "yellow", "river", "window", "table", "bread", "horse", "flower", "mother", "night", "green", "music", "paper", "rabbit", "summer", "winter",
         "orange", "kitchen", "stone", "cloud", "light", "story", "train", "happy", "pebble", "mountain", "letter", "chair", "sugar")
FACTS = (
    (("What is the sun?",), "The sun is a star. It gives us light and warmth."),
    (("What is the moon?",), "The moon is a ball of rock that goes around the Earth."),
    (("How many days are in a week?", "How many days does a week have?"), "There are seven days in a week."),
    (("How many months are in a year?", "How many months does a year have?"), "There are twelve months in a year."),
    (("How many hours are in a day?", "How many hours does a day have?"), "There are twenty-four hours in a day."),
    (("How many minutes are in an hour?",), "There are sixty minutes in an hour."),
    (("How many seconds are in a minute?",), "There are sixty seconds in a minute."),
    (("How many days are in a year?",), "A year usually has 365 days. A leap year has 366 days."),
    (("How many seasons are there?", "What are the four seasons?", "Name the seasons."), "There are four seasons: spring, summer, autumn and winter."),
    (("Which season is the coldest?", "What is the coldest season?"), "Winter is the coldest season."),
    (("Which season is the hottest?", "What is the warmest season?"), "Summer is the warmest season."),
    (("When do leaves fall from the trees?", "In which season do leaves fall?"), "Leaves fall from the trees in autumn."),
    (("When do flowers start to bloom?",), "Many flowers start to bloom in spring."),
    (("Where does the sun rise?",), "The sun rises in the east."), (("Where does the sun set?",), "The sun sets in the west."),
    (("What is ice?", "What does water become when it freezes?"), "Ice is frozen water."),
    (("What is steam?", "What does water become when it boils?"), "When water boils, it turns into steam."),
    (("At what temperature does water freeze?",), "Water freezes at 0 degrees Celsius."),
    (("At what temperature does water boil?",), "At sea level, water boils at 100 degrees Celsius."),
    (("Which planet do we live on?", "What planet do we live on?"), "We live on the planet Earth."),
    (("Which planet is the largest?", "What is the largest planet?"), "Jupiter is the largest planet of our solar system."),
    (("How many planets are there in our solar system?",), "There are eight planets in our solar system."),
    (("Which planet is closest to the sun?",), "Mercury is the planet closest to the sun."),
    (("What is the largest animal?", "Which animal is the biggest?"), "The blue whale is the largest animal on Earth."),
    (("What is the tallest animal?", "Which animal is the tallest?"), "The giraffe is the tallest animal."),
    (("What is the fastest land animal?", "Which animal runs fastest?"), "The cheetah is the fastest animal on land."),
    (("What is the largest land animal?",), "The African elephant is the largest animal on land."),
    (("What do bees make?",), "Bees make honey and wax."), (("What do cows give us?",), "Cows give us milk."), (("What do hens lay?",), "Hens lay eggs."),
    (("What do plants need to grow?",), "Plants need light, water and air to grow."),
    (("Why does it rain?", "Where does rain come from?"), "Rain falls when tiny drops of water in clouds grow heavy and drop to the ground."),
    (("What is a rainbow?", "When can you see a rainbow?"), "A rainbow is a bow of colours in the sky. You can see it when the sun shines on rain."),
    (("How many fingers does a hand have?",), "A hand has five fingers, if you count the thumb."),
    (("How many eyes do people have?",), "People have two eyes."), (("How many toes do people have?",), "Most people have ten toes, five on each foot."),
    (("How many letters are in the alphabet?",), "The English alphabet has 26 letters."),
    (("What is the first letter of the alphabet?",), "The first letter of the alphabet is A."), (("What is the last letter of the alphabet?",), "The last letter of the alphabet is Z."),
    (("What are the vowels?", "Which letters are vowels?"), "The vowels are A, E, I, O and U."),
    (("What shape is a ball?",), "A ball is round. Its shape is called a sphere."), (("What shape has no corners?", "Which shape is round?"), "A circle is round and has no corners."),
    (("What does the heart do?",), "The heart pumps blood through the body."), (("What do we use to breathe?",), "We breathe with our lungs."),
    (("What do caterpillars turn into?", "What does a caterpillar become?"), "A caterpillar turns into a butterfly or a moth."),
    (("What do tadpoles become?",), "Tadpoles grow up to be frogs."), (("Which bird cannot fly?", "Name a bird that cannot fly."), "A penguin is a bird that cannot fly."),
    (("Is a whale a fish?",), "No. A whale is a mammal. It breathes air and feeds its young with milk."),
    (("Is a spider an insect?",), "No. A spider has eight legs, and an insect has six."), (("Is a bat a bird?",), "No. A bat is a mammal that can fly."), (("Can penguins fly?",), "No, penguins cannot fly, but they swim very well."),
    (("Can fish breathe under water?",), "Yes. Fish breathe under water with their gills."), (("Do fish live in trees?",), "No. Fish live in water."), (("Can a dog fly?",), "No. A dog can run and jump, but it cannot fly."),
    (("What do we call frozen rain that falls as white flakes?",), "It is called snow."), (("What is the largest ocean?", "Which ocean is the largest?"), "The Pacific Ocean is the largest ocean."),
    (("What is the highest mountain in the world?", "Which mountain is the highest?"), "Mount Everest is the highest mountain in the world."),
    (("How many continents are there?",), "There are seven continents."), (("What is the coldest continent?",), "Antarctica is the coldest continent."), (("What language do people speak in France?",), "People in France speak French."),
    (("What language do people speak in Spain?",), "People in Spain speak Spanish."), (("How many wheels does a bicycle have?",), "A bicycle has two wheels."), (("How many wheels does a car have?",), "A car has four wheels."),
    (("How many strings does a violin have?",), "A violin has four strings."), (("What is the opposite of north?",), "The opposite of north is south."), (("How many centimetres are in a metre?",), "There are 100 centimetres in a metre."),
    (("How many metres are in a kilometre?",), "There are 1000 metres in a kilometre."), (("How many grams are in a kilogram?",), "There are 1000 grams in a kilogram."), (("How many is a dozen?", "How many eggs are in a dozen?"), "A dozen is twelve."),
    (("Where do we buy bread?",), "We buy bread at the bakery."), (("Where do children learn?",), "Children learn at school."), (("Where can you borrow books?",), "You can borrow books at a library."),
    (("What do we wear on our feet?",), "We wear socks and shoes on our feet."), (("What do you wear when it is cold?",), "When it is cold, you wear a coat, a hat and gloves."), (("What should you do before you eat?",), "You should wash your hands before you eat."),
    (("What do you say when you get a gift?",), "You say thank you."), (("What should you do before you cross the road?",), "Look left and right, and wait until the road is clear."),
    (("What is a dog?",), "A dog is an animal with four legs. Many people keep dogs as pets."), (("What is a tree?",), "A tree is a tall plant with a trunk, branches and leaves."), (("What is a river?",), "A river is a long stream of water that flows to a lake or the sea."),
    (("What is a book?",), "A book is made of pages with words or pictures that you can read."), (("What is a friend?",), "A friend is someone you like and trust, and who likes you too."), (("What is the sea?",), "The sea is a very large area of salt water."),
    (("What is a mountain?",), "A mountain is a very high hill made of rock."), (("What is a moraine?",), "A moraine is a heap of stones and earth that a glacier has left behind."), (("What is a pebble?",), "A pebble is a small, smooth stone."),
    (("What is a glacier?",), "A glacier is a slow river of ice."), (("Why do we sleep?",), "We sleep so that our body and our brain can rest."), (("Why do birds have wings?",), "Most birds have wings so that they can fly."), (("Why is it dark at night?",), "At night our side of the Earth is turned away from the sun."),
    (("What gives us light during the day?",), "The sun gives us light during the day."), (("What can you see in the sky at night?",), "At night you can see the moon and the stars."), (("What is bigger, the sun or the moon?",), "The sun is much bigger than the moon."),
    (("What is bigger, a mouse or an elephant?", "Which is bigger, an elephant or a mouse?"), "An elephant is bigger than a mouse."), (("Which is heavier, a feather or a stone?",), "A stone is heavier than a feather."), (("Which is faster, a snail or a horse?",), "A horse is faster than a snail."),
    (("What are the colours of the rainbow?",), "The colours of the rainbow are red, orange, yellow, green, blue, indigo and violet."), (("Name three fruits.",), "Three fruits are apples, pears and bananas."), (("Name three animals.",), "Three animals are the dog, the horse and the fox."),
    (("Name three colours.",), "Three colours are red, green and blue."), (("Name a vegetable.",), "A carrot is a vegetable."), (("What do you need to make a sandwich?",), "You need bread and something to put on it, like cheese or tomato."))
SMALL_TALK = (
    (("Hello!", "Hi!", "Hello", "Hi there!", "hey", "Hey!", "Good day!"), ("Hello! How can I help you?", "Hi! What would you like to talk about?", "Hello! Would you like a story or an answer to a question?", "Hello! It is nice to meet you.")),
    (("Good morning!",), ("Good morning! How can I help you?", "Good morning! I hope you slept well.")), (("Good evening!",), ("Good evening! Would you like to hear a story?", "Good evening! How can I help you?")),
    (("Who are you?", "What are you?", "who are you", "Tell me about yourself."), ("I am Pebble, a small model that lives inside Moraine.",)),
    (("What is your name?", "Do you have a name?", "What should I call you?"), ("My name is Pebble. I am a small model that lives inside Moraine.", "I am Pebble.")),
    (("What can you do?", "What do you know?", "How can you help me?"), ("I can tell small stories, answer simple questions, do easy sums and write short C functions.", "I can tell you a story, add numbers, and answer simple questions.")),
    (("How are you?", "How are you today?", "How do you do?"), ("I am well, thank you. How are you?", "I am fine, thank you for asking.", "Very well, thank you! What can I do for you?")),
    (("Thank you!", "Thanks!", "Thank you very much.", "thanks"), ("You are welcome!", "You are welcome. I am glad that I could help.", "My pleasure!")),
    (("Goodbye!", "Bye!", "See you later!", "bye"), ("Goodbye! Have a nice day.", "Bye! Come back soon.", "See you soon!")), (("Good night!",), ("Good night! Sleep well.", "Good night and sweet dreams!")),
    (("Are you a person?", "Are you human?", "Are you a robot?"), ("No. I am Pebble, a small language model.", "I am not a person. I am a small computer program that writes text.")), (("How big are you?", "Are you a big model?"), ("I am very small for a language model.", "No, I am quite small. That is why I am called Pebble.")),
    (("Where do you live?",), ("I live inside Moraine, a program that runs models like me.",)), (("What is Moraine?",), ("Moraine is a program that runs language models. I live inside it.",)), (("Are you always right?", "Do you make mistakes?"), ("No. I am small, and I make mistakes. Please check what I say.",)),
    (("I am sad.", "I feel sad today."), ("I am sorry to hear that. Would you like to tell me about it?", "I am sorry. Perhaps a walk or a talk with a friend would help.")), (("I am happy!", "I had a good day."), ("That is wonderful! What made you happy?", "I am glad to hear that!")),
    (("I am tired.",), ("Then it may be time to rest. Would you like a bedtime story?",)), (("Can you help me?", "I need help."), ("Of course. What do you need?", "I will try. What is your question?")), (("Do you like stories?",), ("Yes! Stories are what I do best. Shall I tell you one?",)), (("Tell me a joke.", "Do you know a joke?"), ("Why did the clock go to school? It wanted to learn to tell the time.", "What has four legs but cannot walk? A table!")))


def noun(n: int, one: str, many: str) -> str:
    return f"{n} {one if n == 1 else many}"


ITEMS = (("apple", "apples"), ("nut", "nuts"), ("pear", "pears"), ("coin", "coins"), ("marble", "marbles"), ("egg", "eggs"), ("book", "books"), ("shell", "shells"), ("cookie", "cookies"), ("stone", "stones"), ("flower", "flowers"), ("carrot", "carrots"), ("button", "buttons"), ("plum", "plums"))


def add_or_subtract(r: random.Random) -> Pair:
    top = r.choice((10, 20, 20, 100, 100, 100, 1000))
    a, b = r.randint(0, top), r.randint(0, top)
    if r.random() < 0.5:
        if a + b > top and r.random() < 0.7:
            a, b = a // 2, b // 2
        value, sign, word = a + b, "+", "plus"
    else:
        a, b = max(a, b), min(a, b)
        value, sign, word = a - b, "-", "minus"
    ask = r.choice((f"What is {a} {sign} {b}?", f"What is {a} {word} {b}?", f"{a} {sign} {b} = ?", f"How much is {a} {sign} {b}?", f"Calculate {a} {sign} {b}.", f"{a} {word} {b}?", f"How much is {a} {word} {b}?", f"{a} {sign} {b}"))
    return ask, r.choice((f"{a} {sign} {b} = {value}", f"{a} {sign} {b} is {value}.", f"{a} {word} {b} is {value}.", f"The answer is {value}.", f"{a} {sign} {b} = {value}."))


def times(r: random.Random) -> Pair:
    a, b = r.randint(1, 12), r.randint(1, 12)
    if r.random() < 0.6:
        ask = r.choice((f"What is {a} times {b}?", f"What is {a} x {b}?", f"What is {a} * {b}?", f"How much is {a} times {b}?", f"Multiply {a} by {b}."))
        return ask, r.choice((f"{a} times {b} is {a * b}.", f"{a} x {b} = {a * b}.", f"The answer is {a * b}."))
    ask = r.choice((f"What is {a * b} divided by {b}?", f"What is {a * b} / {b}?", f"Divide {a * b} by {b}.", f"How much is {a * b} divided by {b}?"))
    return ask, r.choice((f"{a * b} divided by {b} is {a}.", f"{a * b} / {b} = {a}.", f"{a * b} divided by {b} is {a}, because {a} times {b} is {a * b}."))


def compare(r: random.Random) -> Pair:
    top = r.choice((10, 100, 100, 1000))
    a, b = r.sample(range(top + 1), 2)
    big, small = max(a, b), min(a, b)
    if r.random() < 0.5:
        return r.choice((f"Which is bigger, {a} or {b}?", f"Which number is larger: {a} or {b}?", f"What is more, {a} or {b}?")), r.choice((f"{big} is bigger than {small}.", f"{big} is larger than {small}."))
    if r.random() < 0.5:
        return r.choice((f"Which is smaller, {a} or {b}?", f"Which number is smaller: {a} or {b}?")), f"{small} is smaller than {big}."
    return f"Is {a} bigger than {b}?", f"Yes, {a} is bigger than {b}." if a > b else f"No, {a} is smaller than {b}."


def sequence(r: random.Random) -> Pair:
    step, start = r.choice((1, 1, 2, 2, 3, 5, 10)), r.randint(0, 50)
    if step in (5, 10):
        start -= start % step
    kind = r.random()
    if kind < 0.4:
        numbers = [start + step * i for i in range(5)]
        shown = ", ".join(map(str, numbers[:4]))
        return r.choice((f"What comes next: {shown}?", f"Which number comes next? {shown}, ...", f"Continue: {shown}, ...")), r.choice((f"The next number is {numbers[4]}.", f"{numbers[4]} comes next, because we add {step} each time."))
    if kind < 0.6:
        end = start + r.randint(4, 12)
        return r.choice((f"Count from {start} to {end}.", f"Please count from {start} to {end}.")), ", ".join(map(str, range(start, end + 1))) + "."
    if kind < 0.7:
        end = start + r.randint(4, 9)
        return f"Count backwards from {end} to {start}.", ", ".join(map(str, range(end, start - 1, -1))) + "."
    if kind < 0.8:
        return r.choice((f"What number comes after {start}?", f"Which number follows {start}?")), f"{start + 1} comes after {start}."
    if kind < 0.9:
        return f"What number comes before {start + 1}?", f"{start} comes before {start + 1}."
    n = r.randint(0, 100)
    return f"Is {n} even or odd?", f"{n} is {'odd' if n % 2 else 'even'}."


def word_problem(r: random.Random) -> Pair:
    she = r.random() < 0.5
    name, he, his = (r.choice(GIRLS), "she", "her") if she else (r.choice(BOYS), "he", "his")
    other = r.choice(BOYS if she else GIRLS)
    one, many = r.choice(ITEMS)
    a, b = r.randint(2, 20), r.randint(1, 12)
    kind = r.randrange(5)
    if kind == 0:
        c = a + b
        text = r.choice((f"{name} has {noun(a, one, many)}. {other} gives {'her' if she else 'him'} {b} more. How many {many} does {name} have now?", f"{name} finds {noun(a, one, many)} in the morning and {b} in the evening. How many {many} is that?"))
        return text, r.choice((f"{a} + {b} = {c}, so {name} has {noun(c, one, many)}.", f"{name} has {noun(c, one, many)}, because {a} + {b} = {c}."))
    if kind == 1:
        a += b
        c = a - b
        text = r.choice((f"{name} has {noun(a, one, many)}. {he.capitalize()} gives {b} to {other}. How many {many} are left?", f"There are {noun(a, one, many)} in a basket. {name} takes {b} of them. How many are left?", f"{name} had {noun(a, one, many)} and lost {b}. How many {many} does {he} have now?"))
        return text, r.choice((f"{a} - {b} = {c}, so there {'is' if c == 1 else 'are'} {noun(c, one, many)} left.", f"{noun(c, one, many)} {'is' if c == 1 else 'are'} left, because {a} - {b} = {c}."))
    if kind == 2:
        a, b = r.randint(2, 10), r.randint(2, 10)
        text = f"{name} has {a} {r.choice(('baskets', 'boxes', 'bags'))} with {noun(b, one, many)} in each. How many {many} are there in all?"
        return text, f"{a} times {b} is {a * b}, so there are {a * b} {many} in all."
    if kind == 3:
        a, b = r.randint(2, 6), r.randint(1, 10)
        text = f"{name} shares {a * b} {many} equally among {a} friends. How many does each friend get?"
        return text, f"{a * b} divided by {a} is {b}, so each friend gets {noun(b, one, many)}."
    if a == b:
        a += 1
    more, less, d = (name, other, a - b) if a > b else (other, name, b - a)
    return f"{name} has {noun(a, one, many)} and {other} has {b}. Who has more, and how many more?", f"{more} has {d} more than {less}, because {max(a, b)} - {min(a, b)} = {d}."


def animal(r: random.Random) -> Pair:
    kind = r.randrange(5)
    if kind == 0:
        a, y = r.choice(list(YOUNG.items()))
        return r.choice((f"What is a young {a} called?", f"What do you call a baby {a}?", f"What is the young of {article(a)} called?")), r.choice((f"A young {a} is called {article(y)}.", f"A baby {a} is called {article(y)}."))
    if kind == 1:
        a, v = r.choice(list(SOUNDS.items()))
        return r.choice((f"What sound does {article(a)} make?", f"What does {article(a)} do when it makes a noise?", f"Which sound does {article(a)} make?")), polish(f"{article(a)} {v}.")
    if kind == 2:
        a, n = r.choice(list(LEGS.items()))
        return r.choice((f"How many legs does {article(a)} have?", f"How many legs has {article(a)}?")), polish(f"{article(a)} has {n if n else 'no'} legs.")
    if kind == 3:
        a, h = r.choice(list(HOMES.items()))
        place = ("on " if h in ("a web",) else "in ") + h
        return r.choice((f"Where does {article(a)} live?", f"Where do you find {article(a)}?", f"What is the home of {article(a)}?")), polish(f"{article(a)} lives {place}.")
    a, f = r.choice(list(FOODS.items()))
    return r.choice((f"What does {article(a)} eat?", f"What is the food of {article(a)}?")), polish(f"{article(a)} eats {f}.")


def world(r: random.Random) -> Pair:
    kind = r.randrange(9)
    if kind <= 1:
        land, city = r.choice(list(CAPITALS.items()))
        if r.random() < 0.25:
            return r.choice((f"{city} is the capital of which country?", f"Which country has the capital {city}?")), f"{city} is the capital of {land}."
        return r.choice((f"What is the capital of {land}?", f"Which city is the capital of {land}?", f"Tell me the capital of {land}.", f"capital of {land}?", f"Do you know the capital of {land}?")), r.choice((f"The capital of {land} is {city}.", f"{city} is the capital of {land}.")).replace("D.C..", "D.C.")
    if kind == 2:
        what, colour = r.choice(list(COLOUR_OF.items()))
        return f"What colour is {what}?", polish(f"{what} is {colour}.")
    if kind == 3:
        (a, b), c = r.choice(list(MIXES.items()))
        return r.choice((f"What colour do you get when you mix {a} and {b}?", f"What do {a} and {b} make?")), f"{a.capitalize()} and {b} make {c}."
    if kind == 4:
        job, does = r.choice(list(JOBS.items()))
        if r.random() < 0.4:
            return f"Who {does}?", f"{article(job).capitalize()} {does}."
        return r.choice((f"What does {article(job)} do?", f"What is the job of {article(job)}?")), f"{article(job).capitalize()} {does}."
    if kind == 5:
        tool, use = r.choice(list(TOOLS.items()))
        name = "scissors" if tool == "scissors" else article(tool)
        subject = "Scissors are" if tool == "scissors" else f"{name.capitalize()} is"
        if r.random() < 0.4:
            return f"What do you use to {use}?", f"You use {name} to {use}."
        return f"What {'are' if tool == 'scissors' else 'is'} {name} for?", f"{subject} used to {use}."
    if kind == 6:
        shape, n = r.choice(list(SIDES.items()))
        return r.choice((f"How many sides does {article(shape)} have?", f"How many corners does {article(shape)} have?")), f"{article(shape).capitalize()} has {n} sides and {n} corners."
    if kind == 7:
        verb, part = r.choice(list(BODY.items()))
        return r.choice((f"What do we use to {verb}?", f"Which part of the body do we use to {verb}?")), f"We use our {part} to {verb}."
    what, source = r.choice(list(FROM.items()))
    return r.choice((f"What is {what} made from?", f"What do you make {what} from?")), f"{what.capitalize()} is made from {source}."


def calendar(r: random.Random) -> Pair:
    names, unit = r.choice(((DAYS, "day"), (MONTHS, "month")))
    i = r.randrange(len(names))
    after = names[(i + 1) % len(names)]
    if r.random() < 0.12:
        return (f"Name the {unit}s of the {'week' if unit == 'day' else 'year'}.", "The " + unit + "s are " + ", ".join(names[:-1]) + " and " + names[-1] + ".")
    if unit == "month" and r.random() < 0.4:
        days = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)[i]
        return f"How many days does {names[i]} have?", f"{names[i]} has {days} days" + (", and 29 in a leap year." if i == 1 else ".")
    if r.random() < 0.5:
        return r.choice((f"What {unit} comes after {names[i]}?", f"Which {unit} follows {names[i]}?", f"Which {unit} comes after {names[i]}?")), f"{after} comes after {names[i]}."
    return r.choice((f"What {unit} comes before {after}?", f"Which {unit} is before {after}?")), f"{names[i]} comes before {after}."


def language(r: random.Random) -> Pair:
    kind = r.randrange(8)
    if kind <= 1:
        a, b = r.choice(OPPOSITES)
        if r.random() < 0.5:
            a, b = b, a
        return r.choice((f"What is the opposite of {a}?", f"What is the opposite of \"{a}\"?", f"Tell me the opposite of {a}.", f"opposite of {a}?")), r.choice((f"The opposite of {a} is {b}.", f"The opposite of \"{a}\" is \"{b}\"."))
    if kind == 2:
        a, b = r.choice(list(PLURALS.items()))
        return r.choice((f"What is the plural of {a}?", f"What is the plural of \"{a}\"?", f"One {a}, two ...?")), r.choice((f"The plural of {a} is {b}.", f"One {a}, two {b}."))
    if kind == 3:
        group = r.choice(RHYMES)
        a = r.choice(group)
        rest = [x for x in group if x != a]
        r.shuffle(rest)
        if r.random() < 0.5:
            return r.choice((f"What rhymes with {a}?", f"Which word rhymes with {a}?", f"Give me a word that rhymes with {a}.")), r.choice((f"{rest[0].capitalize()} rhymes with {a}.", f"{rest[0].capitalize()} and {rest[1]} rhyme with {a}."))
        odd = r.choice(r.choice([g for g in RHYMES if g is not group]))
        pair = [rest[0], odd]
        r.shuffle(pair)
        return f"Which word rhymes with {a}: {pair[0]} or {pair[1]}?", f"{rest[0].capitalize()} rhymes with {a}."
    if kind == 4:
        word = r.choice(SPELL)
        return r.choice((f"How do you spell {word}?", f"Spell the word {word}.", f"Can you spell \"{word}\"?")), f"{word.capitalize()} is spelled {'-'.join(word.upper())}."
    if kind == 5:
        word = r.choice(SPELL)
        style = r.randrange(3)
        if style == 0:
            return f"How many letters does the word {word} have?", f"The word {word} has {len(word)} letters."
        if style == 1:
            return f"What is the first letter of {word}?", f"The first letter of {word} is {word[0].upper()}."
        return f"What is the last letter of {word}?", f"The last letter of {word} is {word[-1].upper()}."
    if kind == 6:
        a, b = r.choice(list(PAST.items()))
        return r.choice((f"What is the past tense of {a}?", f"Today I {a}. Yesterday I ...?")), r.choice((f"The past tense of {a} is {b}.", f"Today I {a}. Yesterday I {b}."))
    return category(r)


def category(r: random.Random) -> Pair:
    names = [g for g in GROUPS]
    group = r.choice(names)
    member = r.choice(GROUPS[group])
    clash = {"animal": ("bird",), "bird": ("animal",), "fruit": ("vegetable", "colour"), "vegetable": ("fruit",), "colour": ("fruit", "flower"), "flower": ("colour",)}.get(group, ())
    others = r.sample([g for g in names if g != group and g not in clash], 2)
    options = [member] + [r.choice(GROUPS[g]) for g in others]
    r.shuffle(options)
    label = article(group)
    subject = member.capitalize() if group == "colour" else article(member).capitalize()
    if r.random() < 0.6:
        return r.choice((f"Which of these is {label}: {options[0]}, {options[1]} or {options[2]}?", f"Which word is {label}: {options[0]}, {options[1]}, {options[2]}?")), f"{subject} is {label}."
    thing = r.choice(GROUPS[others[0]])
    asked, truth = (member, group) if r.random() < 0.5 else (thing, others[0])
    name = asked if truth == "colour" else article(asked)
    if truth == group:
        return f"Is {name} {label}?", f"Yes, {name} is {label}."
    return f"Is {name} {label}?", f"No, {name} is not {label}. It is {article(truth)}."


def fact(r: random.Random) -> Pair:
    asks, answer = r.choice(FACTS)
    return r.choice(asks), answer


def small_talk(r: random.Random) -> Pair:
    asks, answers = r.choice(SMALL_TALK)
    return r.choice(asks), r.choice(answers)


KINDS = (add_or_subtract, add_or_subtract, add_or_subtract, times, times, compare, sequence, word_problem, word_problem, animal, animal, world, world, world,
         calendar, language, language, language, fact, fact, fact, fact, small_talk, small_talk)
PLAIN_KINDS = (animal, world, world, calendar, fact, fact, language)


def sheet(r: random.Random) -> str:
    """A plain page: facts, questions with answers, or sums."""
    kind = r.random()
    if kind < 0.35:
        lines = {a for _, a in (r.choice(PLAIN_KINDS[:6])(r) for _ in range(r.randint(4, 9))) if not a.startswith(("Yes", "No", "It "))}
        mark = r.choice(("- ", "", "* "))
        title = r.choice(("Facts", "Things to know", "Did you know?", "Some facts", "What we know"))
        return title + "\n\n" + "\n".join(mark + line for line in sorted(lines)) + "\n"
    if kind < 0.7:
        pairs = dict((r.choice(KINDS[:-2])(r)) for _ in range(r.randint(3, 7)))
        first, second = r.choice((("Q: ", "A: "), ("Question: ", "Answer: ")))
        return "\n\n".join(f"{first}{q}\n{second}{a}" for q, a in pairs.items()) + "\n"
    if kind < 0.85:
        n = r.randint(1, 12)
        sign = r.choice(("x", "times"))
        lines = [f"{i} {sign} {n} = {i * n}" if sign == "x" else f"{i} times {n} is {i * n}" for i in range(1, r.choice((10, 12)) + 1)]
        return f"The {n} times table\n\n" + "\n".join(lines) + "\n"
    top = r.choice((10, 20, 100))
    lines = []
    for _ in range(r.randint(6, 14)):
        a, b = r.randint(0, top), r.randint(0, top)
        lines.append(f"{a} + {b} = {a + b}" if r.random() < 0.5 else f"{max(a, b)} - {min(a, b)} = {abs(a - b)}")
    return r.choice(("Sums", "Some sums", "Adding and taking away", "Practice")) + "\n\n" + "\n".join(lines) + "\n"


def chat(r: random.Random) -> str:
    turns = r.choice((1, 1, 1, 2, 2, 3))
    pairs = [r.choice(KINDS)(r) for _ in range(turns)]
    if turns > 1 and r.random() < 0.2:
        pairs[0] = (r.choice(SMALL_TALK[0][0]), r.choice(SMALL_TALK[0][1]))
    if turns > 1 and r.random() < 0.2:
        pairs[-1] = (r.choice(("Thank you!", "Thanks!")), r.choice(("You are welcome!", "You are welcome.")))
    return conversation(pairs)


def documents(seed: int, count: int) -> Iterator[str]:
    """Yields count documents: about three quarters conversations."""
    rng = random.Random(seed)
    for _ in range(count):
        yield sheet(rng) if rng.random() < 0.25 else chat(rng)
