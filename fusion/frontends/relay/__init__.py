"""The Relay frontend: the text, the tree, the translation. The text's grammar is `grammar.lark`."""
