package declaration

import "github.com/pfar/pfar/policies/block"

// Key is one key of the schema, for those who document it.
type Key struct {
	Section string // "sandbox"; "" is the file itself
	Name    string
	Type    string // "string", "number", "boolean", "list" or "table"
	Default string // as both syntaxes write it; "": there is none
}

// Keys returns the schema. The keys of server stand at the top as well.
func Keys() []Key { return keysOf(sections()) }

// ClientKeys returns the schema of clients.
func ClientKeys() []Key { return keysOf(clientSections()) }

func sections() []block.Section {
	return newServerFile(block.NewFile("", nil, block.Language{}), newServer("", "")).schema
}

func clientSections() []block.Section {
	return newClientFile(block.NewFile("", nil, block.Language{}), new(Client)).schema
}

func keysOf(sections []block.Section) []Key {
	var all []Key
	for _, s := range sections {
		for _, k := range s.Keys {
			all = append(all, Key{s.Name, k.Name, typeOf(k), k.Unsaid})
		}
	}
	return all
}

func typeOf(k block.Key) string {
	switch {
	case k.Example == "":
		return "table"
	case k.Example[0] == '"':
		return "string"
	case k.Example[0] == '[':
		return "list"
	case k.Example == "true" || k.Example == "false":
		return "boolean"
	}
	return "number"
}
