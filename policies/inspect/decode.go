package inspect

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/pfar/pfar/policies/fence"
	"github.com/pfar/pfar/policies/inspector"
	"github.com/pfar/pfar/policies/jsontext"
	"github.com/pfar/pfar/policies/scan"
)

// maxLayers is how many encodings are undone, one within the other.
const maxLayers = 3

const minEncoded = 16 // characters

// decoded looks at all that a text is an encoding of, or has one in it; an ordinary one has no escapes.
func (in *Inspection) decoded(text string, plain bool, within []string) {
	rotated := len(within) == 0 && in.direction != inspector.Outbound && in.met&turned != 0 // before other texts are met
	next := func(name, plain string) {
		if plain != "" && plain != text {
			in.text(plain, append(within[:len(within):len(within)], name))
		}
	}
	joined := len(within) == 0 && in.all.read
	for r := runsOf(text, isBase64, minEncoded); r.next(); {
		if !joined || !in.all.alone(r.start, r.end) {
			in.run64(r.run(), within)
		}
	}
	numbers := isNumbers.In(text)
	numeric := numbers.Run(0, minEncoded) >= 0
	if numeric {
		for r := runsOf(text, isHexish, minEncoded); r.next(); {
			if plain := undoHex(r.run()); readable(plain) {
				next("hex", string(plain))
			}
		}
	}
	if !plain && strings.IndexByte(text, '%') >= 0 {
		if plain, err := url.QueryUnescape(strings.ReplaceAll(text, "+", "%2B")); err == nil {
			next("URL", plain)
		}
	}
	if !plain && isEscape.Any(text) {
		next("escapes", fence.View(text))
	} else if !plain && in.direction != inspector.Inbound && !ascii(text) { // the search for instructions has looked at that
		next("look-alikes", fence.View(text))
	}
	if numeric {
		for _, plain := range codes(text) {
			next("character codes", plain)
		}
	}
	if rotated {
		next("rot13", rot13(text))
	}
}

// Readings gives read every text that can be read out of a value of JSON: its names, its strings and numbers side by
// side, and what these are an encoding of, as the search for secrets undoes it. It reports false if that is too much.
// read must not keep the text.
func Readings(value []byte, read func(text string)) (whole bool) {
	r := readers.Get().(*reader)
	r.builtin.read = read
	begin(&r.Inspection, &r.builtin, inspector.Outbound, value)
	r.all = joined{text: r.room[:0], looked: r.looked[:0], whole: true}
	r.End(r.texts())
	whole = !slices.ContainsFunc(r.findings, func(f Finding) bool { return f.Severity < Note })
	if room, looked := r.all.text, r.all.looked; cap(room) <= maxEnd && cap(looked) <= maxEnd/8 {
		r.room, r.looked = room, looked
	}
	r.builtin.read, r.Inspection, r.tokens = nil, Inspection{}, jsontext.Reader{}
	readers.Put(r)
	return whole
}

// reader holds the buffers of Readings. A pool reuses them: allocating them takes as long as reading a short text.
type reader struct {
	Inspection
	builtin Builtin
	tokens  jsontext.Reader
	room    []byte // for strings side by side
	looked  []int  // for their places
}

var readers = sync.Pool{New: func() any { return new(reader) }}

// texts does for Readings what strings does for inspections, and also reads numbers. It parses the value once. If that
// fails, it reads the strings before the fault, and then the whole value as one text.
func (r *reader) texts() (deepest int) {
	b, tokens := r.value, &r.tokens
	defer tokens.Close()
	tokens.Reset(b)
	for {
		t, err := tokens.Next()
		switch {
		case err != nil:
			r.String(0, string(b), false)
			return -1
		case t.Kind == jsontext.End:
			return deepest
		case t.Kind == '"':
			at := len(r.all.text)
			r.String(t.Start, tokens.Text(t), t.Name)
			r.all.looked = append(r.all.looked, at, len(r.all.text))
		case t.Kind == jsontext.Number:
			r.all.add(shared(b[t.Start:t.End]), len(b))
		}
		deepest = max(deepest, tokens.Depth())
	}
}

// reading passes a text on. Strings as they stand come side by side, at the end.
func reading(in *Inspection, text string, within []string) {
	if in.name || len(within) > 0 {
		in.read(text)
	}
	if len(within) < maxLayers {
		in.decoded(text, ordinary(text), within)
	}
}

// run64 looks at what a run of characters of Base64 stands for, or of Base32, wherever in it the encoding begins.
func (in *Inspection) run64(run string, within []string) {
	own := rooms.Get().(*[]byte) // what is looked at within has another one
	defer rooms.Put(own)
	for piece := range strings.SplitSeq(run, "=") {
		if len(piece) < minEncoded || few(piece) {
			continue
		}
		room := standard((*own)[:0], piece)
		end := len(room)
		room = slices.Grow(room, base64.RawStdEncoding.DecodedLen(end))
		if cap(room) <= maxEnd {
			*own = room
		}
		plain := room[end:cap(room)]
		for skip := 0; skip < 4 && end-skip >= minEncoded; skip++ {
			part := room[skip:end]
			if len(part)%4 == 1 {
				part = part[:len(part)-1]
			}
			if n, err := base64.RawStdEncoding.Decode(plain, part); err == nil && in.bytes("base64", plain[:n], within) {
				break
			}
		}
		if piece := shared(room[:end]); end >= minEncoded && length(piece, isBase32) == end {
			upper := strings.ToUpper(piece)
			for len(upper)%8 == 1 || len(upper)%8 == 3 || len(upper)%8 == 6 {
				upper = upper[:len(upper)-1]
			}
			if plain, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(upper); err == nil && readable(plain) {
				in.bytes("base32", plain, within)
			}
		}
	}
}

// rooms hold a run of characters, and behind it the bytes that it stands for.
var rooms = sync.Pool{New: func() any { return new([]byte) }}

// standard appends Base64 to b in the usual alphabet. s may be in the alphabet of URLs, and in lines.
func standard(b []byte, s string) []byte {
	for i := range len(s) {
		switch s[i] {
		case '-':
			b = append(b, '+')
		case '_':
			b = append(b, '/')
		case '\n', '\r':
		default:
			b = append(b, s[i])
		}
	}
	return b
}

// bytes looks at bytes that an encoding stood for: at their text, or at that of what they are compressed. It reports
// whether they are one or the other as a whole. It keeps none of them.
func (in *Inspection) bytes(name string, plain []byte, within []string) bool {
	layers := func() []string { return append(within[:len(within):len(within)], name) }
	if readable(plain) {
		in.text(string(plain), layers())
		return true
	}
	if how, text := in.inflate(plain); readable(text) {
		in.text(string(text), append(layers(), how))
		return true
	}
	var lines []byte
	for r := runsOf(shared(plain), isPrintable, minPrintable); r.next(); {
		if lines != nil {
			lines = append(lines, '\n')
		}
		lines = append(lines, r.run()...)
	}
	if lines != nil {
		in.text(shared(lines), layers())
	}
	return false
}

// opened reports whether what a run of characters encodes is looked at as a text. What it unpacks to counts as work.
func (in *Inspection) opened(run string) bool {
	sub := Inspection{Builtin: &Builtin{}, direction: inspector.Outbound, limits: in.limits, work: in.work}
	defer func() { in.work = sub.work }()
	plain, err := base64.RawStdEncoding.DecodeString(string(standard(nil, strings.TrimRight(run, "="))))
	if err != nil {
		return readable(undoHex(run))
	}
	if readable(plain) {
		return true
	}
	_, text := sub.inflate(plain)
	return readable(text) || readable(undoHex(run))
}

const minPrintable = 12 // bytes of text among others

// inflate undoes a compression, no further than there is work left.
func (in *Inspection) inflate(b []byte) (how string, plain []byte) {
	var r io.Reader
	var err error
	switch {
	case bytes.HasPrefix(b, []byte{0x1f, 0x8b}):
		how = "gzip"
		r, err = gzip.NewReader(bytes.NewReader(b))
	case len(b) > 2 && b[0]&0x0f == 8 && (int(b[0])<<8|int(b[1]))%31 == 0:
		how = "zlib"
		r, err = zlib.NewReader(bytes.NewReader(b))
	case len(b) > 8 && mayInflate(b):
		how = "deflate"
		f := inflaters.Get().(*inflater)
		defer inflaters.Put(f)
		r, err = f, f.reset(b)
	default:
		return "", nil
	}
	if err != nil {
		return "", nil
	}
	left := max(in.limits.Work-in.work, 0)
	plain, err = io.ReadAll(io.LimitReader(r, int64(left)+1))
	if in.work += len(plain); len(plain) > left {
		in.add(tooMuchWork, Suspicious, []string{how}, "it unpacks to more than is looked at", "")
	}
	if err != nil && how == "deflate" { // it was none
		return "", nil
	}
	return how, plain
}

// readable reports whether bytes are text, mostly.
func readable(b []byte) bool {
	if len(b) < 4 || !utf8.Valid(b) {
		return false
	}
	bad := 0
	for _, r := range string(b) {
		if !unicode.IsPrint(r) && !unicode.IsSpace(r) && !unicode.Is(unicode.Cf, r) {
			bad++
		}
	}
	return bad*10 <= len(b)
}

// runs finds the longest pieces of a text that are made of some characters and have some length at least. It passes
// over a line end within one, as encoders put them there. Its zero value finds none.
type runs struct {
	text  string
	of    *scan.Set
	least int
	found scan.Finder
	start int // where the run begins that next has gone to
	end   int // where it ends
}

func runsOf(text string, of *scan.Set, least int) runs {
	return runs{text: text, of: of, least: least, found: of.In(text)}
}

// next goes to the next run. It reports false if there is none.
func (r *runs) next() bool {
	start := r.found.Run(r.end, r.least)
	if start < 0 {
		return false
	}
	i, text, of := start+r.least, r.text, r.of
	for i < len(text) && (of.Has(text[i]) || (text[i] == '\n' || text[i] == '\r') && i-start >= 60 && i+1 < len(text) &&
		(of.Has(text[i+1]) || text[i+1] == '\n')) {
		i++
	}
	r.start, r.end = start, i
	return true
}

// run returns the run that next has gone to.
func (r *runs) run() string { return r.text[r.start:r.end] }

var (
	isBase64   = set(alphanumeric + "+/-_=")
	isBase32   = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz234567")
	isHexish   = set("0123456789abcdefABCDEFxX\\:, ")
	isDecimals = set("0123456789,; \t\r\n")
	isNumbers  = scan.Of(func(c byte) bool { return isHexish.Has(c) || isDecimals.Has(c) })

	isPrintable = between(' ', '~')
	isVisible   = between('!', '~')
)

var hexSigns = strings.NewReplacer(`\x`, "", `\X`, "", "0x", "", "0X", "", ":", "", ",", "", " ", "", `\`, "", "x", "", "X", "")

// undoHex reads hexadecimal digits, with the signs between them that people and programs write: "6a:6b", `\x6a\x6b`,
// "0x6a, 0x6b".
func undoHex(run string) []byte {
	digits := hexSigns.Replace(run)
	if len(digits) < minEncoded {
		return nil
	}
	plain, err := hex.DecodeString(digits[:len(digits)&^1])
	if err != nil {
		return nil
	}
	return plain
}

// turns are what undoes itself: a text is written with them as it is read.
var turns = [...]struct {
	name string
	undo func(string) string
}{{"rot13", rot13}, {"reversed", reversed}}

func rot13(s string) string {
	b := []byte(s)
	for i, c := range b {
		switch {
		case c >= 'a' && c <= 'z':
			b[i] = 'a' + (c-'a'+13)%26
		case c >= 'A' && c <= 'Z':
			b[i] = 'A' + (c-'A'+13)%26
		}
	}
	return string(b)
}

// reversed has the characters of a text in the other order.
func reversed(s string) string {
	b := make([]byte, 0, len(s))
	for len(s) > 0 {
		_, n := utf8.DecodeLastRuneInString(s)
		b = append(b, s[len(s)-n:]...)
		s = s[:len(s)-n]
	}
	return string(b)
}

const minCodes = 8

// codes returns the texts that decimal numbers side by side are the characters of, in an array of JSON or in a string.
func codes(s string) []string {
	var texts []string
	for r := runsOf(s, isDecimals, minEncoded); r.next(); {
		var text []byte
		for number := range strings.FieldsFuncSeq(r.run()+" 0", func(r rune) bool { return r < '0' || r > '9' }) {
			n, err := strconv.Atoi(number)
			if err == nil && (n >= ' ' && n <= '~' || n == '\n' || n == '\t') {
				text = append(text, byte(n))
				continue
			}
			if len(text) >= minCodes {
				texts = append(texts, string(text))
			}
			text = text[:0]
		}
	}
	return texts
}
