package inspect

import (
	"strings"
	"testing"
)

func TestRender(t *testing.T) {
	got := Render([]byte(`{"a":"x\u0079\n","b":["1",2,true,{"c/d":"z"}],"a very odd\nname":0,"n":[104,101,108,108,111,32,121,111,117]}`))
	const want = "/a: xy\n\n/b/0: 1\n/b/3/c~1d: z\na name: a very odd\nname\ncharacter codes: hello you\n"
	if got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func FuzzChunks(f *testing.F) {
	f.Add("hello world, this is a text", 7, 3)
	f.Add("äöü€😀äöü", 5, 2)
	f.Add("\x80\x80\x80\x80\x80\x80\x80\x80\x80", 8, 4)
	f.Fuzz(func(t *testing.T, text string, size, overlap int) {
		size = 8 + size&0xff
		overlap = overlap & 0xff % (size/2 + 1)
		chunks, rest := Chunks(text, size, overlap), text
		for i, c := range chunks {
			if !strings.HasPrefix(rest, c) || len(c) > size {
				t.Fatalf("%q in %d, %d: chunk %d is %q", text, size, overlap, i, c)
			}
			if i+1 == len(chunks) {
				if c != rest {
					t.Fatalf("%q in %d, %d ends before %q", text, size, overlap, rest)
				}
				break
			}
			next := boundary(rest, len(c)-overlap)
			if next <= 0 || len(c)-next < overlap {
				t.Fatalf("%q in %d, %d: chunk %d goes on at %d", text, size, overlap, i, next)
			}
			rest = rest[next:]
		}
	})
}
