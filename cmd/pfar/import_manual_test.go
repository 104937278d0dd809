package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestImportManual imports the file that pfar-import(7) shows, and compares what pfar prints with the manual. The
// manual's claims about what is not imported, and where secrets go, are those of TestFiles of generator/importer.
func TestImportManual(t *testing.T) {
	page, err := os.ReadFile("../../packaging/man/pfar-import.7")
	if err != nil {
		t.Fatal(err)
	}
	plain := strings.NewReplacer(`\-`, "-", `\e`, `\`, `\&`, "").Replace(string(page))
	_, section, _ := strings.Cut(plain, "\n.Sh EXAMPLE\n")
	section, _, _ = strings.Cut(section, "\n.Sh ")
	blocks := strings.Split(section, "\n.Bd -literal\n")
	if len(blocks) != 3 {
		t.Fatalf("EXAMPLE has %d blocks", len(blocks)-1)
	}
	file, _, _ := strings.Cut(blocks[1], ".Ed\n")
	want, _, _ := strings.Cut(blocks[2], ".Ed")

	b, _ := withFile(t, clientsFile)
	b.keeper(t)
	at := filepath.Join(b.dirs.Run, "mcp.json")
	if err := os.WriteFile(at, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	const columns = 75
	screen, program := newScreen(t, columns, 110)
	n := b.again("")
	n.stdin, n.stdout, n.stderr = program, program, program
	n.getenv = variables(b.getenv, map[string]string{"NO_COLOR": "1"})
	n.streams.getenv = n.getenv
	if code := n.run(t.Context(), []string{"import", at, "--dry-run"}); code != 0 {
		t.Errorf("exit %d", code)
	}
	program.WriteString("THE END")
	screen.await(t, "THE END")
	_, drawn, _ := screen.state()
	got, _, _ := strings.Cut(strings.ReplaceAll(strings.ReplaceAll(drawn, "\r", ""), at, "mcp.json"), "THE END")
	if got != want {
		t.Errorf("pfar prints\n%s", got)
	}
	if strings.Contains(got, "FAKE") {
		t.Error("a secret is printed")
	}
}
