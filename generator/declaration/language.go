package declaration

import (
	"slices"
	"sync"

	"github.com/pfar/pfar/policies/block"
)

// language is what declarations of servers are like. servers is the folder of installed servers.
func language(servers string) block.Language {
	return block.Language{
		Named: toolSection, Instance: "search", Dotted: trustSection, Forms: objects(), Public: publicKey, Remedies: true,
		Variable: variable(servers),
		Says: sentences(
			`%[1]s stands alone: write %[1]s { ... }. The server's name is the file's, or name = "notion".`,
			`A tool block names one tool: write tool "search" { semantics = "read" }.`),
	}
}

// clientLanguage is what those of clients are like.
func clientLanguage() block.Language {
	return block.Language{
		Named: serverSection, Instance: "notion", Forms: objects(), Public: publicKey, Remedies: true, Variable: variable(""),
		Says: sentences(
			`%[1]s stands alone: write %[1]s { ... }. The client's name is the file's, or name = "desk".`,
			`A server block names one server: write server "notion" { label = "sensitive" }.`),
	}
}

// variable is the folder that installed servers live in.
func variable(servers string) block.Variable {
	return block.Variable{
		Name: "servers", Value: servers,
		Unknown: "%s is not known: ${servers}, the directory of installed servers, is the only variable. " +
			"Write $${%[2]s} for these characters themselves.",
		Capital: ` In env and auth, a whole value "$%[2]s" is a variable of pfar's environment.`,
		None:    "No directory of installed servers was given, so ${servers} stands for nothing. Write the path itself.",
	}
}

func sentences(label, nameless string) block.Sentences {
	return block.Sentences{
		Computed: "Declarations hold strings, numbers, lists and blocks, nothing that is computed. Write the value itself.",
		Template: `A string holds text and ${servers}, nothing that is computed. Write $${ for the characters "${", %%{ for "%{".`,
		TooDeep: "Declarations hold plain strings, numbers, lists and blocks, at most %d within each other. " +
			`Write the value itself, and %%%%{ for the characters "%%{" in a string.`,
		Label: label, Nameless: nameless,
		Twice:     "%[1]s was given already in line %[3]d. Keep one of the two.",
		Elsewhere: "%s was given already in line %d: it stands at the top or in server. Keep one of the two.",
		Null:      "%s is null. Leave the key out.",
		Empty:     "%s is empty. Write %s, or leave the key out.",
		WrongType: "%s takes %s, not %s. Write %s.",
		Truth:     "true or false",
		Quoted:    "%[1]s takes true or false, not a string. Write %[1]s = %[2]s, without quotes.",
		Meant:     "Write KEY = WORD.",
	}
}

// publicKey reports whether the value of a key is no secret.
func publicKey(name string) bool { return publicKeys()[name] }

var publicKeys = sync.OnceValue(func() map[string]bool {
	keys := map[string]bool{}
	for _, s := range slices.Concat(sections(), clientSections()) {
		for _, name := range s.Names() {
			keys[name] = true
		}
	}
	for _, secret := range []string{authSection, "env", "token_env", "url", "secret", "token_sha256"} {
		delete(keys, secret)
	}
	return keys
})
