package scan

// reach is how many letters of a word are looked at.
const reach = 4

// Words is a number of words, in small letters, some of which may begin somewhere in a text: a filter for those who
// look at each word of a text, of which few are one of these. The zero value has none. (The Teddy of Hyperscan, by
// letters instead of halves of bytes: each byte of a table has a bit for each of eight groups of words.)
type Words struct {
	tables [reach][32]byte // by letter
}

// Add adds a word to one of eight groups. The more alike the words of a group begin, the less often one of them may
// begin somewhere.
func (w *Words) Add(word string, group int) {
	bit := byte(1) << (group % 8)
	for k := range w.tables {
		if k < len(word) {
			w.tables[k][letter(word[k])] |= bit
			continue
		}
		for c := range w.tables[k] { // anything may follow
			w.tables[k][c] |= bit
		}
	}
}

// letter is what tells letters apart, whether they are small or capital: the lowest five bits of ASCII, and of other
// bytes four.
func letter(c byte) byte {
	if c >= 0x80 {
		c |= 0x10
	}
	return c & 0x1f
}

// Mark sets dst[k] to where in the 64 bytes of the text from i+64k on one of the words may begin, as Mark of Set does.
// At the end of the text each may begin anywhere, and everywhere on a machine on which to look closely at each is
// quicker.
func (w *Words) Mark(dst []uint64, text string, i int) int {
	rest := text[i:]
	n := min(len(dst), (len(rest)+Block-1)/Block)
	whole := max(min(n, (len(rest)-reach+1)/Block), 0)
	w.begin(dst[:whole], rest)
	anywhere(dst[whole:n])
	return n
}

func anywhere(dst []uint64) {
	for k := range dst {
		dst[k] = ^uint64(0)
	}
}
