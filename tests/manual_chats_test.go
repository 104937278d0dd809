package tests

import (
	"encoding/json"
	"regexp"
	"testing"

	"github.com/pfar/pfar/generator/declaration"
)

const chatsPage = "../packaging/man/pfar-chat.5"

// TestManualKnowsTheSchemaOfChats compares the manual's keys, their types and defaults with the schema, both ways.
func TestManualKnowsTheSchemaOfChats(t *testing.T) {
	compareKeys(t, read(t, chatsPage), declaration.ChatKeys())
}

// TestManualExamplesOfChats reads every declaration of a chat that the manual shows.
func TestManualExamplesOfChats(t *testing.T) {
	shown := regexp.MustCompile(`(?s)\n\.Pa chat\.d/(\S+\.(?:hcl|toml)) :\n\.Bd -literal -offset indent\n(.*?)\.Ed\n`)
	chats := map[string]string{}
	for _, m := range shown.FindAllStringSubmatch(read(t, chatsPage), -1) {
		one, diags := declaration.ParseChat(m[1], []byte(m[2]))
		if len(diags) > 0 {
			t.Errorf("%s: %v", m[1], diags)
			continue
		}
		b, err := json.Marshal(one.External)
		if err != nil {
			t.Fatal(err)
		}
		chats[m[1]] = string(b)
	}
	if len(chats) != 3 || chats["matrix.hcl"] != chats["matrix.toml"] {
		t.Errorf("the two syntaxes of the synopsis are two chats: %q", chats)
	}
}
