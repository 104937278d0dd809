package pins

import (
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "rewrite the expected differences in testdata")

// TestGoldenDiffs shows what owners see. Of each case there is what was accepted, if anything was, what is offered, and
// the difference.
func TestGoldenDiffs(t *testing.T) {
	const path = "testdata/diffs.txtar"
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	cases := 0
	for i, f := range archive.Files {
		files[f.Name] = f.Data
		name, ok := strings.CutSuffix(f.Name, ".diff")
		if !ok {
			continue
		}
		cases++
		got, cut := compare(name, json.RawMessage(files[name+".accepted"]), json.RawMessage(files[name+".offered"]))
		if cut != 0 {
			t.Errorf("%s: %d bytes are cut", name, cut)
		}
		onlyVisible(t, got)
		if *update {
			archive.Files[i].Data = []byte(got)
		} else if got != string(f.Data) {
			t.Errorf("%s: got\n%swant\n%s", name, got, f.Data)
		}
	}
	if cases < 5 {
		t.Errorf("%d cases", cases)
	}
	if *update {
		if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
