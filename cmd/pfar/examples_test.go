package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/units"
)

// TestExamplesCanBeTyped holds the commands of pfar(1), EXAMPLES, and of pfar-import(7) against the program: verbs,
// flags and number of arguments. A folder stands where one belongs, and each command before pfar runs says where its
// servers' programs are.
func TestExamplesCanBeTyped(t *testing.T) {
	b, err := os.ReadFile("../../packaging/man/pfar.1")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(strings.ReplaceAll(string(b), `\-`, "-"), "\n.Sh EXAMPLES\n")
	section, _, _ = strings.Cut(section, "\n.Sh ")
	page, err := os.ReadFile("../../packaging/man/pfar-import.7")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range strings.Split(string(page), "\n.Bd -literal -offset indent\n")[1:] {
		commands, _, _ := strings.Cut(block, "\n.Ed\n")
		section += "\n" + strings.ReplaceAll(commands, `\-`, "-")
	}
	lines := regexp.MustCompile(`(?m)^pfar (.*?)(  +#.*)?$`).FindAllStringSubmatch(section, -1)
	if len(lines) < 6 {
		t.Fatalf("%d commands found", len(lines))
	}
	c := newPfar(nil, nil, nil, func(string) string { return "" }, 0)
	up := false
	for _, line := range lines {
		cmd, args, err := rootCommand(c).Find(strings.Fields(line[1]))
		if err != nil || !cmd.Runnable() || !cmd.HasParent() {
			t.Errorf("pfar %s: no such verb: %v", line[1], err)
			continue
		}
		if cmd.Name() == "call" { // its flags are the tool's
			if server, tool, _ := strings.Cut(args[0], "."); !units.IsServer(server) || tool == "" {
				t.Errorf("pfar %s: %q is not NAME.TOOL", line[1], args[0])
			}
			continue
		}
		if err := cmd.ParseFlags(args); err != nil {
			t.Errorf("pfar %s: %v", line[1], err)
			continue
		}
		args = cmd.Flags().Args()
		if err := cmd.ValidateArgs(args); err != nil {
			t.Errorf("pfar %s: %v", line[1], err)
		}
		if dir := cmd.Flags().Lookup("dir"); dir != nil && dir.Changed {
			args = append(slices.Clone(args), dir.Value.String())
			if !isFolder(dir.Value.String()) {
				t.Errorf("pfar %s: no directory %q", line[1], dir.Value)
			}
		} else if folder := slices.Contains([]string{"check", "up"}, cmd.Name()); len(args) > 0 && isFolder(args[0]) != folder {
			t.Errorf("pfar %s: %q is a directory: %t, want %t", line[1], args[0], !folder, folder)
		}
		up = up || cmd.Name() == "up"
		if f := cmd.Flags().Lookup("servers"); f != nil && (!up || cmd.Name() == "up") && (f.Value.String() != "build/servers" || len(args) == 0) {
			t.Errorf("pfar %s: before pfar runs it takes a directory and --servers build/servers", line[1])
		}
	}
}

func isFolder(path string) bool {
	info, err := os.Stat(filepath.Join("../..", path))
	return err == nil && info.IsDir()
}
