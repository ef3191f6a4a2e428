"""x"""


def draw(o): ...
