"""Weights of other packages for networks of the zoo: torchvision, timm and Keras applications.

``names`` lists what a package calls each layer, in the order in which the zoo builds its own; ``reading`` reads files
into arrays in the layout of the specs; ``fitting`` puts them into place and says what was loaded, what is new and what
was left.
"""
