package fingerprint

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

// TestFingerprintIsBounded wants a start to cost no more for what is too large, and that to be said.
func TestFingerprintIsBounded(t *testing.T) {
	host := fstest.MapFS{}
	for i := range maxFiles + 10 {
		host[fmt.Sprintf("srv/n/node_modules/x/%d.js", i)] = &fstest.MapFile{Data: []byte("1")}
	}
	if f := Of(host, []string{"/srv/n/node_modules/x"}); f.Beyond == 0 || f.Files > maxFiles+1 {
		t.Errorf("%+v", f)
	}
}

// TestFingerprintReadsSoMuch: beyond what it reads of all files, it tells a file by its name and size.
func TestFingerprintReadsSoMuch(t *testing.T) {
	of := func(files string) Fingerprint {
		host := fstest.MapFS{}
		for line := range strings.Lines(files) {
			name, text, _ := strings.Cut(strings.Trim(line, "/\n"), " : ")
			host[name] = &fstest.MapFile{Data: []byte(text)}
		}
		return of(host, []string{"/srv/n/node_modules/x"}, 10)
	}
	const a, b = "/srv/n/node_modules/x/a.js : 1234567\n", "/srv/n/node_modules/x/b.js : 1234567\n"
	before := of(a + b)
	if before.Files != 2 || before.Beyond != 1 {
		t.Fatalf("%+v", before)
	}
	for _, c := range []struct {
		what, files string
		same        bool
	}{
		{"content within", strings.Replace(a, "7", "8", 1) + b, false},
		{"content beyond", a + strings.Replace(b, "7", "8", 1), true},
		{"the size beyond", a + strings.Replace(b, "7", "78", 1), false},
		{"the name beyond", a + strings.Replace(b, "b.js", "c.js", 1), false},
	} {
		if after := of(c.files); (after == before) != c.same {
			t.Errorf("%s changes: %+v, before %+v", c.what, after, before)
		}
	}
	manual, err := os.ReadFile("../../packaging/man/pfar-declaration.5")
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("It covers the first %d files; beyond %d MiB, only the name and size of a file count.", maxFiles, maxContent>>20)
	if !strings.Contains(string(manual), want) {
		t.Errorf("the manual does not say %q", want)
	}
}
