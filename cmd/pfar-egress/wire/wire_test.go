package wire

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/broker/rootca"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/redact"
)

const (
	token   = "ntn_A1b2C3d4E5f6G7h8I9j0K1l2"
	other   = "sk-zY9xW8vU7tS6rQ5pO4nM3lK2jJ1" // for another host
	odd     = `p+ss/w"rd\&=%<x>1234`
	apiHost = "api.allowed.test"
)

func placeholderOf(t testing.TB, name, value string) string {
	t.Helper()
	p, err := broker.Placeholder([]byte("seed"), name, value)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func secret(t testing.TB, name, value, host string, places ...string) broker.Secret {
	t.Helper()
	e, err := egress.ParseEndpoint(host)
	if err != nil {
		t.Fatal(err)
	}
	s := broker.Secret{Name: name, Value: value, Placeholder: placeholderOf(t, name, value), Hosts: []egress.Endpoint{e}}
	for _, text := range places {
		p, err := broker.ParsePlace(text)
		if err != nil {
			t.Fatal(err)
		}
		s.Places = append(s.Places, p)
	}
	return s
}

func material(t testing.TB, secrets ...broker.Secret) broker.Material {
	t.Helper()
	a, err := rootca.New([]byte("seed"), "notion")
	if err != nil {
		t.Fatal(err)
	}
	return broker.Material{Authority: a, Secrets: secrets}
}

// everywhere are secrets that may stand in every kind of place.
func everywhere(t testing.TB) broker.Material {
	t.Helper()
	return material(t,
		secret(t, "TOKEN", token, apiHost, "header:authorization", "header:x-api-key", "header:cookie", "query:key", "body"),
		secret(t, "ODD", odd, apiHost, "header:authorization", "query:odd", "body"),
		secret(t, "OTHER", other, "other.allowed.test", "header:authorization", "query:key", "body"),
	)
}

func source(t testing.TB, m broker.Material) *Source {
	t.Helper()
	var s Source
	if err := s.Take(m); err != nil {
		t.Fatal(err)
	}
	return &s
}

var allowed = egress.Decision{Verdict: egress.Allow, Host: apiHost}

// put has a request with such a body changed, and returns what goes out.
func put(t testing.TB, s *Source, method, target string, h http.Header, body io.Reader) (*http.Request, string, error) {
	t.Helper()
	r, err := http.NewRequest(method, "https://"+apiHost+target, body)
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range h {
		r.Header[k] = slices.Clone(v)
	}
	if _, err := s.Put(r, allowed, 443); err != nil {
		return nil, "", err
	}
	if r.Body == nil {
		return r, "", nil
	}
	b, err := io.ReadAll(r.Body)
	return r, string(b), err
}

func TestPutRefuses(t *testing.T) {
	s := source(t, everywhere(t))
	p, o := placeholderOf(t, "TOKEN", token), placeholderOf(t, "OTHER", other)
	basic := func(text string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(text)) }
	for name, c := range map[string]struct {
		method, target string
		header         http.Header
		body, want     string
	}{
		"undeclared field":                    {header: http.Header{"X-Other": {p}}, want: WrongPlace},
		"second of an undeclared field":       {header: http.Header{"X-Other": {"x", p}}, want: WrongPlace},
		"within an undeclared field":          {header: http.Header{"User-Agent": {"agent/1 (" + p + ")"}}, want: WrongPlace},
		"a field's name":                      {header: http.Header{"X-" + p: {"x"}}, want: WrongPlace},
		"a field's name as Go writes it":      {header: http.Header{http.CanonicalHeaderKey("x-" + p): {"x"}}, want: WrongPlace},
		"a field's name in lower case":        {header: http.Header{"X-" + strings.ToLower(p): {"x"}}, want: WrongPlace},
		"another host's secret":               {header: http.Header{"Authorization": {"Bearer " + o}}, want: WrongHost},
		"another host's, beside the right":    {header: http.Header{"Authorization": {"Bearer " + p + " " + o}}, want: WrongHost},
		"another host's within Basic":         {header: http.Header{"Authorization": {basic("me:" + o)}}, want: WrongHost},
		"another host's as Basic":             {header: http.Header{"Authorization": {"Basic " + o}}, want: WrongHost},
		"another host's as Basic, padded":     {header: http.Header{"Authorization": {"Basic " + o + "=="}}, want: WrongHost},
		"both within Basic":                   {header: http.Header{"Authorization": {basic(p + ":" + o)}}, want: WrongHost},
		"Basic where it is not Authorization": {header: http.Header{"X-Other": {basic("me:" + p)}}, want: WrongPlace},
		"Basic of Proxy-Authorization":        {header: http.Header{"Proxy-Authorization": {basic("me:" + p)}}, want: WrongPlace},
		"Base64 in a declared field":          {header: http.Header{"X-Api-Key": {base64.StdEncoding.EncodeToString([]byte("me:" + p))}}, want: WrongPlace},
		"in hexadecimal":                      {header: http.Header{"X-Api-Key": {hex.EncodeToString([]byte(p))}}, want: WrongPlace},
		"the path":                            {target: "/bot" + p + "/send", want: WrongPlace},
		"the path, encoded":                   {target: "/bot" + strings.ReplaceAll(p, "_", "%5F") + "/send", want: WrongPlace},
		"another host's in the path":          {target: "/" + o, want: WrongHost},
		"undeclared parameter":                {target: "/?token=" + p, want: WrongPlace},
		"undeclared parameter, encoded":       {target: "/?token=" + strings.ReplaceAll(p, "_", "%5f"), want: WrongPlace},
		"a parameter's name":                  {target: "/?" + p + "=1", want: WrongPlace},
		"a parameter's name, encoded":         {target: "/?" + strings.ReplaceAll(p, "_", "%5f") + "=1", want: WrongPlace},
		"a parameter's name alone":            {target: "/?" + p, want: WrongPlace},
		"a semicolon is no separator":         {target: "/?a=1;key=" + p, want: WrongPlace},
		"a parameter in another case":         {target: "/?KEY=" + p, want: WrongPlace},
		"another host's as a parameter":       {target: "/?key=" + o, want: WrongHost},
		"the referrer":                        {header: http.Header{"Referer": {"https://x/?key=" + p}}, want: WrongPlace},
		"the method":                          {method: p, want: WrongPlace},
		"another host's in the body":          {method: "POST", body: "a " + o, want: WrongHost},
		"in the body in hexadecimal":          {method: "POST", body: hex.EncodeToString([]byte(p)), want: WrongPlace},
		"in a body that is encoded":           {method: "POST", header: http.Header{"Content-Encoding": {"gzip"}}, body: p, want: WrongPlace},
	} {
		t.Run(name, func(t *testing.T) {
			for _, known := range []bool{true, false} {
				var body io.Reader = strings.NewReader(c.body)
				if !known {
					body = io.MultiReader(body)
				}
				_, got, err := put(t, s, c.method, c.target, c.header, body)
				refusal, ok := errors.AsType[*Refusal](err)
				if !ok || refusal.Reason != c.want {
					t.Errorf("%q, %v; want %s", got, err, c.want)
				}
				if strings.Contains(fmt.Sprint(err, refusal), p) {
					t.Error("the refusal quotes it")
				}
			}
		})
	}
}

func TestPut(t *testing.T) {
	pair := base64.StdEncoding.EncodeToString([]byte("user:password-18")) // is what a secret may be itself
	m := everywhere(t)
	m.Secrets = append(m.Secrets, secret(t, "PAIR", pair, apiHost, "header:authorization"))
	s := source(t, m)
	p, o := placeholderOf(t, "TOKEN", token), placeholderOf(t, "ODD", odd)
	basic := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	for name, c := range map[string]struct {
		target, field, in, out string // without a field: of the query
	}{
		"bearer":           {field: "Authorization", in: "Bearer " + p, out: "Bearer " + token},
		"alone":            {field: "X-Api-Key", in: p, out: token},
		"twice":            {field: "Authorization", in: p + p, out: token + token},
		"two secrets":      {field: "Authorization", in: p + "," + o, out: token + "," + odd},
		"a cookie":         {field: "Cookie", in: "a=b; s=" + p + "; c=d", out: "a=b; s=" + token + "; c=d"},
		"Basic":            {field: "Authorization", in: "Basic " + basic("me:"+p), out: "Basic " + basic("me:"+token)},
		"basic":            {field: "Authorization", in: "basic " + basic(p+":"), out: "basic " + basic(token+":")},
		"Basic, unpadded":  {field: "Authorization", in: "Basic " + strings.TrimRight(basic("m:"+p), "="), out: "Basic " + basic("m:"+token)},
		"Basic of another": {field: "Authorization", in: "Basic " + basic("me:you"), out: "Basic " + basic("me:you")},
		"Basic, encoded":   {field: "Authorization", in: "Basic " + placeholderOf(t, "PAIR", pair), out: "Basic " + pair},
		"Basic, not alone": {field: "Authorization", in: "basic  " + p + ", x", out: "basic  " + token + ", x"},
		"Basic, no Base64": {field: "Authorization", in: "Basic " + p, out: "Basic " + token},
		"another case":     {field: "Authorization", in: strings.ToUpper(p), out: strings.ToUpper(p)},
		"all but the end":  {field: "Authorization", in: p[:len(p)-1], out: p[:len(p)-1]},
		"one too long":     {field: "Authorization", in: p + "x", out: token + "x"},
		"query":            {in: "a=1&key=" + p + "&b=%zz", out: "a=1&key=" + token + "&b=%zz"},
		"query, encoded":   {in: "key=" + strings.ReplaceAll(p, "_", "%5f"), out: "key=" + token},
		"query, its name":  {in: "%6bey=" + p, out: "%6bey=" + token},
		"query, oddly":     {in: "odd=a+" + o, out: "odd=a+" + url.QueryEscape(odd)},
	} {
		t.Run(name, func(t *testing.T) {
			h, target := http.Header{}, "/"
			if c.field != "" {
				h.Set(c.field, c.in)
			} else {
				target += "?" + c.in
			}
			r, _, err := put(t, s, "GET", target, h, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := r.Header.Get(c.field)
			if c.field == "" {
				got = r.URL.RawQuery
			}
			if got != c.out {
				t.Errorf("%q, want %q", got, c.out)
			}
		})
	}
}

// Bodies, whole and at each border of two pieces, with their length and without.
func TestPutBody(t *testing.T) {
	s := source(t, everywhere(t))
	p, o := placeholderOf(t, "TOKEN", token), placeholderOf(t, "ODD", odd)
	for _, c := range []struct{ kind, in, out string }{
		{"text/plain", "a " + p + " b " + o, "a " + token + " b " + odd},
		{"application/json; charset=utf-8", `{"t":"` + p + `","o":"` + o + `"}`, `{"t":"` + token + `","o":"p+ss/w\"rd\\\u0026=%\u003cx\u003e1234"}`},
		{"application/vnd.api+json", `"` + o + `"`, `"p+ss/w\"rd\\\u0026=%\u003cx\u003e1234"`},
		{"application/x-www-form-urlencoded", "o=" + o, "o=" + url.QueryEscape(odd)},
		{"multipart/form-data; boundary=x", "--x\r\n\r\n" + o + "\r\n--x--", "--x\r\n\r\n" + odd + "\r\n--x--"},
		{"nonsense;;", p + p[:7], token + p[:7]},
		{"text/plain", p[:9] + p + p[:9] + p, p[:9] + token + p[:9] + token},
		{"text/plain", strings.Repeat("n", 100<<10) + p, strings.Repeat("n", 100<<10) + token},
	} {
		h := http.Header{"Content-Type": {c.kind}}
		r, got, err := put(t, s, "POST", "/", h, strings.NewReader(c.in))
		if err != nil || got != c.out {
			t.Fatalf("%s: %.100q, %v; want %.100q", c.kind, got, err, c.out)
		}
		if r.ContentLength != int64(len(c.out)) && r.ContentLength != -1 {
			t.Errorf("%s: a length of %d, want %d", c.kind, r.ContentLength, len(c.out))
		}
		if len(c.in) > 4096 {
			continue
		}
		for i := range len(c.in) + 1 {
			if _, got, err := put(t, s, "POST", "/", h, io.MultiReader(strings.NewReader(c.in[:i]), strings.NewReader(c.in[i:]))); err != nil || got != c.out {
				t.Fatalf("%s, cut at %d: %q, %v", c.kind, i, got, err)
			}
		}
	}
}

func TestAsksForWhatItCanRead(t *testing.T) {
	s := source(t, everywhere(t))
	for in, want := range map[string]string{
		"": "identity", "gzip": "gzip", "br, GZIP;q=0.5": "gzip", "gzip;q=0": "identity", "gzip; q=0.000, br": "identity", "br": "identity", "*": "identity",
	} {
		r, _, err := put(t, s, "GET", "/", http.Header{"Accept-Encoding": {in}, "Range": {"bytes=0-4"}, "If-Range": {"x"}, "Request-Range": {"bytes=0-4"}, "X-Ms-Range": {"bytes=0-4"}, "Accept-Charset": {"utf-16"}, "Sec-Websocket-Extensions": {"permessage-deflate"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Header.Get("Accept-Encoding"); got != want || len(r.Header) != 1 {
			t.Errorf("%q: %v, want %s", in, r.Header, want)
		}
	}
}

// A refused trailer leaves the body without its end.
func TestPutRefusesTrailers(t *testing.T) {
	s := source(t, everywhere(t))
	for _, trailer := range []http.Header{{"X-T": {placeholderOf(t, "TOKEN", token)}}, {"X-" + placeholderOf(t, "TOKEN", token): {"x"}}} {
		r, _ := http.NewRequest("POST", "https://"+apiHost, io.MultiReader(strings.NewReader("body")))
		r.Trailer = trailer
		q, err := s.Put(r, allowed, 443)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(r.Body); q.Refused() == nil || Refused(q.Context()) != q.Refused() || !errors.Is(err, q.Refused()) {
			t.Errorf("%v: %v", trailer, err)
		}
	}
}

// wrap writes a text in every way that a response may hold it, beside its forms.
func wrap(forms []string, value string) []string {
	all := slices.Clone(forms)
	for before := range 4 {
		for _, e := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding, base64.RawURLEncoding} {
			all = append(all, e.EncodeToString([]byte(strings.Repeat("u", before)+value+"tail")))
		}
	}
	return all
}

func holds(text string, values ...string) bool {
	return slices.ContainsFunc(values, func(v string) bool {
		return slices.ContainsFunc(forms(v), func(f string) bool { return strings.Contains(text, f) })
	})
}

func response(t testing.TB, s *Source, h http.Header, body io.Reader) (*http.Response, string, error) {
	t.Helper()
	if h == nil {
		h = http.Header{}
	}
	r := &http.Response{StatusCode: 200, Status: "200 OK", Header: h, Body: io.NopCloser(body), ContentLength: -1, Request: &http.Request{Method: "GET"}, Trailer: http.Header{}}
	if err := s.Response(r); err != nil {
		return nil, "", err
	}
	b, err := io.ReadAll(r.Body)
	return r, string(b), err
}

func TestResponse(t *testing.T) {
	s := source(t, everywhere(t))
	for _, value := range []string{token, odd, other} {
		for i, text := range wrap(forms(value), value) {
			whole := "before " + text + " after " + text + text
			want := ""
			for cut := range len(whole) + 1 {
				_, got, err := response(t, s, nil, io.MultiReader(strings.NewReader(whole[:cut]), strings.NewReader(whole[cut:])))
				if cut == 0 {
					want = got
				}
				if err != nil || holds(got, value) || got != want || len(got) == len(whole) && got == whole {
					t.Fatalf("form %d, cut at %d: %q, %v; want %q", i, cut, got, err, want)
				}
			}
			h := http.Header{"X-Echo": {"a", text + ";" + text}, http.CanonicalHeaderKey(strings.Map(func(r rune) rune {
				if strings.ContainsRune(`"\/=<>%&+`, r) {
					return -1
				}
				return r
			}, "x-"+text)): {"v"}}
			r, _, err := response(t, s, h, strings.NewReader(""))
			if err != nil || holds(fmt.Sprint(r.Header), value) || r.Status != "" {
				t.Errorf("form %d: %v, %v", i, r.Header, err)
			}
		}
	}
	if r, _, _ := response(t, s, http.Header{"X-" + strings.ToUpper(token): {"x"}}, strings.NewReader("")); len(r.Header) != 0 {
		t.Errorf("a field's name: %v", r.Header)
	}
	for _, text := range []string{"ntn_", "ends with n", token[:3] + "x" + token[4:], strings.Repeat("ntn_A1", 1000), "{}"} {
		if _, got, err := response(t, s, nil, strings.NewReader(text)); err != nil || got != text {
			t.Errorf("%.50q becomes %.50q, %v", text, got, err)
		}
	}
}

// A server that has its guesses echoed learns nothing: a beginning of a value comes back as any other text does.
func TestResponseTellsNoGuess(t *testing.T) {
	s := source(t, everywhere(t))
	for _, value := range []string{token, odd, other} {
		for i, f := range forms(value) {
			for n := 1; n < len(f); n++ {
				if holds(f[:n], value) {
					continue
				}
				right, wrong := f[:n], f[:n-1]+string(f[n-1]^1)
				for _, guess := range []string{right, "id=" + right, wrong, "id=" + wrong} {
					if got := echoes(t, s, guess); got != "" {
						t.Fatalf("form %d, %q: %s", i, guess, got)
					}
				}
			}
		}
	}
}

// echoes says where a guess comes back changed; "": nowhere.
func echoes(t *testing.T, s *Source, guess string) string {
	t.Helper()
	r := &http.Response{StatusCode: 200, Header: http.Header{"X-Request-Id": {guess, guess + " "}}, ContentLength: -1, Request: &http.Request{Method: "GET"}, Trailer: http.Header{"X-Echo": {guess}}}
	r.Body = io.NopCloser(io.MultiReader(strings.NewReader(guess+"\n"), strings.NewReader(guess[:len(guess)/2]), strings.NewReader(guess[len(guess)/2:])))
	if err := s.Response(r); err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	sent := bytes.Join([][]byte{message(false, 1, guess+" "), message(false, 1, guess), message(false, 2, guess[:len(guess)/2], guess[len(guess)/2:])}, nil)
	want := []string{guess + " ", guess, guess}
	if len(guess) <= maxControl {
		sent = append(append(sent, message(false, 9, guess)...), message(false, 10, guess)...)
		want = append(want, "("+guess+")", "("+guess+")")
	}
	conn, _, _ := webSocket(t, s, bytes.NewReader(sent))
	got, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case !slices.Equal(r.Header["X-Request-Id"], []string{guess, guess + " "}):
		return fmt.Sprintf("the field is %q", r.Header)
	case r.Trailer.Get("X-Echo") != guess:
		return fmt.Sprintf("the trailer is %q", r.Trailer)
	case string(body) != guess+"\n"+guess:
		return fmt.Sprintf("the body is %q", body)
	case !slices.Equal(messages(t, false, got), want):
		return fmt.Sprintf("the messages are %q", messages(t, false, got))
	}
	return ""
}

func TestResponseBreaksOff(t *testing.T) {
	s := source(t, everywhere(t))
	bad := errors.New("the connection broke")
	for sent, want := range map[string]string{
		"text " + token:                   "text " + placeholderOf(t, "TOKEN", token),
		"text " + token[:len(token)-1]:    "text " + token[:len(token)-1], // as any other text: it may be a guess that is echoed
		"text " + token[:8] + "x" + token: "text " + token[:8] + "x" + placeholderOf(t, "TOKEN", token),
	} {
		if _, got, err := response(t, s, nil, io.MultiReader(strings.NewReader(sent), failing{bad})); got != want || !errors.Is(err, bad) {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// How much of a guess comes at once does not tell whether it is right either.
func TestResponseHoldsEveryGuessBackAlike(t *testing.T) {
	s := source(t, everywhere(t))
	for _, value := range []string{token, odd, other} {
		for i, f := range forms(value) {
			for n := 1; n < len(f); n++ {
				wrong := f[:n-1] + "Z"
				if f[n-1] == 'Z' {
					wrong = f[:n-1] + "Y"
				}
				if holds(f[:n], value) {
					continue
				}
				if right, not := comes(t, s, f[:n]), comes(t, s, wrong); !slices.Equal(right, not) {
					t.Fatalf("form %d: %q comes as %v, %q as %v", i, f[:n], right, wrong, not)
				}
			}
		}
	}
}

// comes is how many octets come at a time of a guess that is echoed at the end of a piece.
func comes(t *testing.T, s *Source, guess string) (sizes []int) {
	t.Helper()
	pieces := []string{"id: " + guess, "\n" + guess, guess}
	var in []io.Reader
	for _, p := range pieces {
		in = append(in, strings.NewReader(p))
	}
	r := &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(io.MultiReader(in...)), ContentLength: -1, Request: &http.Request{Method: "GET"}}
	if err := s.Response(r); err != nil {
		t.Fatal(err)
	}
	frames, _, _ := webSocket(t, s, bytes.NewReader(message(false, 1, pieces...)))
	for _, from := range []io.Reader{r.Body, frames} {
		b := make([]byte, 4096)
		for {
			n, err := from.Read(b)
			if sizes = append(sizes, n); err != nil {
				break
			}
		}
	}
	return sizes
}

// What no secret can go on from is passed on at once, and the rest with what follows.
func TestHeldBack(t *testing.T) {
	s := source(t, everywhere(t))
	in, out := io.Pipe()
	r := &http.Response{StatusCode: 200, Header: http.Header{}, Body: in, ContentLength: -1, Request: &http.Request{Method: "GET"}}
	if err := s.Response(r); err != nil {
		t.Fatal(err)
	}
	b, writes := make([]byte, 100), make(chan string, 10)
	defer close(writes)
	go func() {
		for text := range writes {
			io.WriteString(out, text)
		}
	}()
	defer time.AfterFunc(2*time.Minute, func() { out.CloseWithError(errors.New("nothing comes")) }).Stop()
	long := strings.Repeat("x", s.now.Load().scrub.longest)
	for _, c := range []struct{ in, out string }{
		{"data: one\n\n", "data: one\n\n"}, {`{"a":[1]}`, `{"a":[1]}`}, {"data: nt", "data: "}, {"n_\n\n", "ntn_\n\n"}, {"data: xy", "data: "}, {"\n", "xy\n"},
		{token[:20], ""}, {" x", token[:20] + " "}, {long, "xx"}, {"\xff", long[1:] + "\xff"},
		{token[:1], ""}, {token[1:], ""}, {"}", placeholderOf(t, "TOKEN", token) + "}"},
	} {
		writes <- c.in
		got := ""
		for len(got) < len(c.out) {
			n, err := r.Body.Read(b)
			if err != nil {
				t.Fatal(err)
			}
			got += string(b[:n])
		}
		if got != c.out {
			t.Errorf("after %q it is %q, want %q", c.in, got, c.out)
		}
	}
}

func gzipped(b []byte) []byte {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write(b)
	_ = z.Close()
	return zipped.Bytes()
}

func TestResponseEncoding(t *testing.T) {
	s := source(t, everywhere(t))
	zipped := gzipped([]byte("a " + token + " b"))
	want := "a " + placeholderOf(t, "TOKEN", token) + " b"
	for _, coding := range []string{"gzip", "GZIP", "x-gzip"} {
		h := http.Header{"Content-Encoding": {coding}, "Content-Length": {fmt.Sprint(len(zipped))}}
		r, got, err := response(t, s, h, bytes.NewReader(zipped))
		if err != nil || got != want || len(r.Header) != 0 {
			t.Errorf("%s: %q %v, %v", coding, got, r.Header, err)
		}
	}
	for _, h := range []http.Header{{"Content-Encoding": {"br"}}, {"Content-Encoding": {"gzip, gzip"}}, {"Content-Encoding": {"gzip", "br"}}, {"Content-Encoding": {"deflate"}}, {"Content-Encoding": {"zstd"}}, {"Content-Encoding": {"x"}}} {
		if _, got, err := response(t, s, h, strings.NewReader("x")); !errors.Is(err, ErrEncoding) {
			t.Errorf("%v: %q, %v", h, got, err)
		}
	}
	if _, got, err := response(t, s, http.Header{"Content-Encoding": {"gzip"}}, strings.NewReader("a "+token)); err == nil {
		t.Errorf("what is not gzip: %q", got)
	}
	if _, got, err := response(t, s, http.Header{"Content-Encoding": {"identity"}}, strings.NewReader("a "+token+" b")); err != nil || got != want {
		t.Errorf("identity: %q, %v", got, err)
	}
}

// After a rotation, requests get the new value at once, and what is under way loses both.
func TestRotation(t *testing.T) {
	const next = "ntn_Z9y8X7w6V5u4T3s2R1q0P9o8"
	m := everywhere(t)
	s := source(t, m)
	in, out := io.Pipe()
	r := &http.Response{StatusCode: 200, Header: http.Header{}, Body: in, ContentLength: -1, Request: &http.Request{Method: "GET"}}
	if err := s.Response(r); err != nil {
		t.Fatal(err)
	}
	p := m.Secrets[0].Placeholder
	go func() {
		io.WriteString(out, "a "+token+" "+next[:10])
		changed := material(t, m.Secrets...)
		changed.Secrets[0].Value = next
		if err := s.Take(changed); err != nil {
			t.Error(err)
		}
		io.WriteString(out, next[10:]+" "+token)
		out.Close()
	}()
	if b, err := io.ReadAll(r.Body); err != nil || string(b) != "a "+p+" "+p+" "+p {
		t.Errorf("%q, %v", b, err)
	}
	if r, _, err := put(t, s, "GET", "/", http.Header{"Authorization": {p}}, nil); err != nil || r.Header.Get("Authorization") != next {
		t.Errorf("%v", err)
	}
	if _, got, _ := response(t, s, nil, strings.NewReader(token+next)); got != p+p {
		t.Errorf("later it is %q", got)
	}
	for i := range 2 * maxFormer {
		m.Secrets[0].Value = fmt.Sprintf("ntn_%024d", i)
		if err := s.Take(m); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.now.Load().former); n != maxFormer {
		t.Errorf("%d former values are kept", n)
	}
}

// A server that runs on has the placeholder of a value that was replaced by one of another shape.
func TestFormerPlaceholders(t *testing.T) {
	values := []string{token, "ntn_0123456789abcdef", "ntn_1234567890123", "9f8e7d6c5b4a39281706", "ntn_A1b2C3d4E5f6G7h8I9j0K1l2M3n4"}
	places := []string{"header:authorization", "query:key", "body"}
	unchanged := secret(t, "OTHER", other, "other.allowed.test", "header:authorization")
	var s Source
	var stood []string
	for _, v := range values {
		m := material(t, secret(t, "TOKEN", v, apiHost, places...), unchanged)
		if err := s.Take(m); err != nil {
			t.Fatal(err)
		}
		if p := m.Secrets[0].Placeholder; slices.Contains(stood, p) {
			t.Fatalf("%q stands for two values", p)
		} else {
			stood = append(stood, p)
		}
	}
	knowsFormer(t, &s, values[len(values)-1], stood)
	// The bridge of a server that runs on was started again: pfard tells it.
	m := material(t, secret(t, "TOKEN", values[len(values)-1], apiHost, places...), unchanged)
	m.Secrets[0].Former = stood[:len(stood)-1]
	var fresh Source
	if err := fresh.Take(m); err != nil {
		t.Fatal(err)
	}
	knowsFormer(t, &fresh, values[len(values)-1], stood)
	m.Secrets[0].Former = []string{"ntn_", stood[0]}
	if err := fresh.Take(m); err == nil {
		t.Error("what could stand in a text by chance is taken for a placeholder")
	}
}

// knowsFormer wants each of the placeholders to stand for the value of now, where it is declared and nowhere else.
func knowsFormer(t *testing.T, s *Source, now string, stood []string) {
	t.Helper()
	for _, p := range stood {
		h := http.Header{"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+p))}}
		r, body, err := put(t, s, "POST", "/?key="+p, h, strings.NewReader("t="+p))
		if err != nil {
			t.Fatalf("%q: %v", p, err)
		}
		if _, pair, _ := r.BasicAuth(); pair != now || r.URL.RawQuery != "key="+now || body != "t="+now {
			t.Errorf("%q: %v %q %q", p, r.Header, r.URL.RawQuery, body)
		}
		for name, c := range map[string]struct {
			target string
			header http.Header
		}{
			"a field": {"/", http.Header{"X-Other": {p}}}, "a field's name": {"/", http.Header{http.CanonicalHeaderKey("x-" + p): {"x"}}},
			"the path": {"/" + p, nil}, "a parameter": {"/?token=" + p, nil}, "in hexadecimal": {"/?key=" + hex.EncodeToString([]byte(p)), nil},
		} {
			if _, _, err := put(t, s, "GET", c.target, c.header, nil); err == nil || err.Error() != WrongPlace {
				t.Errorf("%q, %s: %v", p, name, err)
			}
		}
		elsewhere, _ := http.NewRequest("GET", "https://other.allowed.test/", nil)
		elsewhere.Header.Set("Authorization", p)
		if _, err := s.Put(elsewhere, egress.Decision{Verdict: egress.Allow, Host: "other.allowed.test"}, 443); err == nil || err.Error() != WrongHost {
			t.Errorf("%q to another host: %v", p, err)
		}
		if s.Mentioned([]byte("X: "+p+"\r\n")) == nil {
			t.Errorf("%q goes out unencrypted", p)
		}
	}
	if _, got, _ := response(t, s, nil, strings.NewReader(now)); got != stood[len(stood)-1] {
		t.Errorf("the value comes back as %q", got)
	}
}

// Values are large at most as keys and tokens are, and a machine has many servers.
func TestMemory(t *testing.T) {
	const bound = 16 << 20
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var s Source
	for i := range 2 * maxStands {
		var secrets []broker.Secret
		for j := range 3 {
			r := rand.New(rand.NewPCG(uint64(i), uint64(j)))
			value := make([]byte, 2048+i) // of another length each time
			for k := range value {
				value[k] = byte('!' + r.IntN(94))
			}
			secrets = append(secrets, secret(t, fmt.Sprint("KEY", j), string(value), apiHost, "header:authorization", "query:key", "body"))
		}
		if err := s.Take(material(t, secrets...)); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []string{"text/plain", "application/json", "application/x-www-form-urlencoded"} {
		if _, _, err := put(t, &s, "POST", "/?key=x", http.Header{"Content-Type": {kind}, "Authorization": {"x"}}, strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	used := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("%d KiB for %d forms", used>>10, len(s.now.Load().scrub.list))
	if used > bound {
		t.Errorf("three secrets take %d bytes, want %d at most", used, bound)
	}
	if n := len(s.now.Load().former); n != 3*maxFormer {
		t.Errorf("%d former values are kept", n)
	}
	runtime.KeepAlive(&s)
}

// TestFind compares with what is done byte by byte and text by text.
func TestFind(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	text := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte('a' + r.IntN(3))
		}
		return string(b)
	}
	for range 5000 {
		var list []pattern
		for i := range 1 + r.IntN(12) {
			list = append(list, pattern{text: text(r.IntN(6)), with: fmt.Sprint(i)})
		}
		in, want := text(r.IntN(30)), ""
		for i := 0; i < len(in); {
			best := pattern{}
			for _, p := range list {
				if strings.HasPrefix(in[i:], p.text) && len(p.text) > len(best.text) {
					best = p
				}
			}
			if best.text == "" {
				best = pattern{text: in[i : i+1], with: in[i : i+1]}
			}
			want += best.with
			i += len(best.text)
		}
		s, cut := compile(list), r.IntN(len(in)+1)
		f := filter{patterns: func() *patterns { return s }}
		got, _ := f.add(nil, []byte(in[:cut]), false)
		if got, _ = f.add(got, []byte(in[cut:]), true); string(got) != want {
			t.Fatalf("%q with %v, cut at %d, becomes %q, want %q", in, list, cut, got, want)
		}
	}
}

// The longest of two that begin alike counts, and what was put in is not looked through again.
func TestOverlappingTexts(t *testing.T) {
	for name, c := range map[string]struct {
		list    []pattern
		in, out string
	}{
		"one begins the other":       {[]pattern{{text: "abcabc", with: "1"}, {text: "abcabcdd", with: "2"}}, "abcabcdd abcabcd abcabc", "2 1d 1"},
		"one is in the other":        {[]pattern{{text: "bcd", with: "1"}, {text: "abcde", with: "2"}}, "abcdx abcde", "a1x 2"},
		"one ends as another begins": {[]pattern{{text: "abcd", with: "1"}, {text: "cdef", with: "2"}}, "abcdef cdef", "1ef 2"},
		"with itself":                {[]pattern{{text: "aab", with: "1"}}, "aaab aaaab aabaab", "a1 aa1 11"},
		"the result is a text":       {[]pattern{{text: "ab", with: "ba"}, {text: "aab", with: "ab"}}, "aabab abb", "abba bab"},
	} {
		t.Run(name, func(t *testing.T) {
			s := compile(c.list)
			for i := range len(c.in) + 1 {
				for j := i; j <= len(c.in); j++ {
					f := filter{patterns: func() *patterns { return s }}
					var got []byte
					for k, piece := range []string{c.in[:i], c.in[i:j], c.in[j:]} {
						got, _ = f.add(got, []byte(piece), k == 2)
					}
					if string(got) != c.out {
						t.Fatalf("cut at %d and %d: %q, want %q", i, j, got, c.out)
					}
				}
			}
		})
	}
}

func TestMentioned(t *testing.T) {
	var s Source
	p := placeholderOf(t, "TOKEN", token)
	if s.Mentioned([]byte(p)) != nil || s.For(allowed, 443) {
		t.Error("an empty source knows something")
	}
	if err := s.Take(everywhere(t)); err != nil {
		t.Fatal(err)
	}
	for _, text := range wrap(redact.Forms(p), p) {
		if r := s.Mentioned([]byte("GET / HTTP/1.1\r\nX: " + text + "\r\n\r\n")); r == nil || r.Reason != Plain {
			t.Errorf("%q: %v", text, r)
		}
	}
	if r := s.Mentioned([]byte("GET / HTTP/1.1\r\nX: " + p[1:] + "\r\n\r\n")); r != nil {
		t.Error("what is none is refused")
	}
	if s.For(egress.Decision{Host: "third.allowed.test"}, 443) || s.For(allowed, 8443) || !s.For(allowed, 443) {
		t.Error("it is for other hosts")
	}
}

func TestTakeRefusesShortSecrets(t *testing.T) {
	var s Source
	m := everywhere(t)
	m.Secrets[1].Value = "short"
	if err := s.Take(m); err == nil || s.For(allowed, 443) || strings.Contains(err.Error(), "\"short") {
		t.Errorf("%v", err)
	}
	m = everywhere(t)
	m.Authority.Key = nil
	if err := s.Take(m); err == nil || s.For(allowed, 443) {
		t.Error("an authority without a key is taken")
	}
}
