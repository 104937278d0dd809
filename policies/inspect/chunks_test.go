package inspect

import (
	"strings"
	"testing"
)

func TestRender(t *testing.T) {
	const want = "/a: xy\n\n/b/0: 1\n/b/3/c~1d: z\na name: a very odd\nname\ncharacter codes: hello you\n"
	value := []byte(`{"a":"x\u0079\n","b":["1",2,true,{"c/d":"z"}],"a very odd\nname":0,"n":[104,101,108,108,111,32,121,111,117]}`)
	if got, ok := Render(value, len(want)); got != want || !ok {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got, ok := Render(value, len(want)-1); ok {
		t.Errorf("too long, got %q", got)
	}
	if _, ok := Render([]byte("no JSON"), 6); ok {
		t.Error("too long, and no JSON")
	}
}

// TestRenderBounded: what is too long is not written first.
func TestRenderBounded(t *testing.T) {
	value := []byte(`{"` + strings.Repeat("n", 150) + `":[` + strings.Repeat(`"x y",`, 1<<17) + `0]}`)
	one := testing.AllocsPerRun(1, func() { Render(value[:0], 1<<10) })
	if n := testing.AllocsPerRun(1, func() { Render(value, 1<<10) }); n > one+1000 {
		t.Errorf("%.0f allocations for 1 KiB", n)
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
