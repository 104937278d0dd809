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
	for _, run := range runs(text, isBase64, minEncoded) {
		in.run64(run, within)
	}
	numbers := isNumbers.In(text)
	numeric := numbers.Run(0, minEncoded) >= 0
	if numeric {
		for _, run := range runs(text, isHexish, minEncoded) {
			if plain := undoHex(run); readable(plain) {
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
	r.all = joined{text: r.room[:0], whole: true}
	r.End(r.texts())
	whole = !slices.ContainsFunc(r.findings, func(f Finding) bool { return f.Severity < Note })
	if room := r.all.text; cap(room) <= maxEnd {
		r.room = room
	}
	r.builtin.read, r.Inspection = nil, Inspection{}
	readers.Put(r)
	return whole
}

// reader holds the buffers of Readings. A pool reuses them: allocating them takes as long as reading a short text.
type reader struct {
	Inspection
	builtin Builtin
	room    []byte // for strings side by side
}

var readers = sync.Pool{New: func() any { return new(reader) }}

// texts does for Readings what strings does for inspections, and also reads numbers. It parses the value once. If that
// fails, it reads the strings before the fault, and then the whole value as one text.
func (r *reader) texts() (deepest int) {
	b := r.value
	var tokens jsontext.Reader
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
			r.String(t.Start, tokens.Text(t), t.Name)
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
	for piece := range strings.SplitSeq(run, "=") {
		if len(piece) < minEncoded || few(piece) {
			continue
		}
		piece = standard(piece)
		for skip := 0; skip < 4 && len(piece)-skip >= minEncoded; skip++ {
			part := piece[skip:]
			if len(part)%4 == 1 {
				part = part[:len(part)-1]
			}
			if plain, err := base64.RawStdEncoding.DecodeString(part); err == nil && in.bytes("base64", plain, within) {
				break
			}
		}
		if len(piece) >= minEncoded && length(piece, isBase32) == len(piece) {
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

// standard makes Base64 of the URL's alphabet, or in lines, that of the usual one.
func standard(s string) string {
	if !strings.ContainsAny(s, "-_\n\r") {
		return s
	}
	b := make([]byte, 0, len(s))
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
	return shared(b)
}

// bytes looks at bytes that an encoding stood for: at their text, or at that of what they are compressed. It reports
// whether they are one or the other as a whole.
func (in *Inspection) bytes(name string, plain []byte, within []string) bool {
	layers := append(within[:len(within):len(within)], name)
	if readable(plain) {
		in.text(string(plain), layers)
		return true
	}
	if how, text := in.inflate(plain); readable(text) {
		in.text(string(text), append(layers, how))
		return true
	}
	in.text(strings.Join(runs(string(plain), isPrintable, minPrintable), "\n"), layers)
	return false
}

// opened reports whether what a run of characters encodes is looked at as a text. What it unpacks to counts as work.
func (in *Inspection) opened(run string) bool {
	sub := Inspection{Builtin: &Builtin{}, direction: inspector.Outbound, limits: in.limits, work: in.work}
	defer func() { in.work = sub.work }()
	plain, err := base64.RawStdEncoding.DecodeString(standard(strings.TrimRight(run, "=")))
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

// runs returns the longest pieces of a text that are made of these characters, of some length at least. A line end
// within one is passed over, as encoders put them.
func runs(text string, of *scan.Set, least int) []string {
	var all []string
	f := of.In(text)
	for start := f.Run(0, least); start >= 0; {
		i := start + least
		for i < len(text) && (of.Has(text[i]) || (text[i] == '\n' || text[i] == '\r') && i-start >= 60 && i+1 < len(text) &&
			(of.Has(text[i+1]) || text[i+1] == '\n')) {
			i++
		}
		all = append(all, text[start:i])
		start = f.Run(i, least)
	}
	return all
}

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
	for _, numbers := range runs(s, isDecimals, minEncoded) {
		var text []byte
		for number := range strings.FieldsFuncSeq(numbers+" 0", func(r rune) bool { return r < '0' || r > '9' }) {
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
