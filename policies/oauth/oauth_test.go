package oauth

import (
	"encoding/json"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/egress"
)

var now = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// written is a token set as golang.org/x/oauth2 writes it, with what is needed beside that, after the changes: a nil
// leaves a member out.
func written(changes map[string]any) []byte {
	m := map[string]any{
		"access_token": "AT-hunter2", "refresh_token": "RT-hunter2", "token_type": "Bearer", "expiry": "2026-11-01T13:00:00.123456789+00:00",
		"token_url": "https://login.example.com/token", "client_id": "CI-hunter2", "client_secret": "CS-hunter2",
	}
	maps.Copy(m, changes)
	maps.DeleteFunc(m, func(_ string, v any) bool { return v == nil })
	text, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return text
}

func TestParseRefuses(t *testing.T) {
	long := strings.Repeat("hunter2", 3000)
	for name, c := range map[string]struct {
		text []byte
		want string
	}{
		"nothing":                  {nil, "a JSON object"},
		"no object":                {[]byte(`"hunter2"`), "a JSON object"},
		"null":                     {[]byte("null"), "a JSON object"},
		"a broken object":          {[]byte(`{"access_token": hunter2}`), "a JSON object"},
		"two objects":              {[]byte(`{} {"hunter2": 1}`), "a JSON object"},
		"no access token":          {written(map[string]any{"access_token": nil}), "access_token is missing"},
		"an empty access token":    {written(map[string]any{"access_token": ""}), "access_token is missing"},
		"no endpoint":              {written(map[string]any{"token_url": nil}), "token_url is missing"},
		"no client":                {written(map[string]any{"client_id": nil}), "client_id is missing"},
		"a misspelt member":        {written(map[string]any{"expires": "hunter2"}), "expires is not a member"},
		"another ID token":         {written(map[string]any{"id_tokens": "hunter2"}), "id_tokens is not a member"},
		"a value as a member":      {written(map[string]any{"hunter2!": 1}), "something is not a member"},
		"a number as a token":      {written(map[string]any{"refresh_token": 1234567}), "refresh_token is of another type"},
		"a list as a token":        {written(map[string]any{"access_token": []string{"hunter2"}}), "access_token is of another type"},
		"a line break":             {written(map[string]any{"access_token": "hunter2\r\nX: y"}), "access_token has characters"},
		"a NUL":                    {written(map[string]any{"client_secret": "hunter2\x00"}), "client_secret has characters"},
		"not ASCII":                {written(map[string]any{"refresh_token": "hünter2"}), "refresh_token has characters"},
		"a long token":             {written(map[string]any{"access_token": long}), "access_token exceeds"},
		"a bad endpoint alone":     {written(map[string]any{"refresh_token": nil, "token_url": "http://hunter2.example"}), "token_url is no"},
		"http":                     {written(map[string]any{"token_url": "http://hunter2.example/token"}), "token_url is no"},
		"a user in the address":    {written(map[string]any{"token_url": "https://u:hunter2@example.com/token"}), "token_url is no"},
		"a fragment":               {written(map[string]any{"token_url": "https://example.com/token#hunter2"}), "token_url is no"},
		"no host":                  {written(map[string]any{"token_url": "https:///hunter2"}), "token_url is no"},
		"an opaque address":        {written(map[string]any{"token_url": "https:hunter2"}), "token_url is no"},
		"a wildcard":               {written(map[string]any{"token_url": "https://*.hunter2.example/token"}), "token_url: its host"},
		"a port of no use":         {written(map[string]any{"token_url": "https://example.com:0/hunter2"}), "token_url: its port"},
		"an unspecified address":   {written(map[string]any{"token_url": "https://0.0.0.0/hunter2"}), "token_url: its host"},
		"a number as the host":     {written(map[string]any{"token_url": "https://2130706433/hunter2"}), "token_url: its host"},
		"an unknown style":         {written(map[string]any{"auth_style": "hunter2"}), "auth_style must be"},
		"a header without secret":  {written(map[string]any{"auth_style": "header", "client_secret": nil}), "client_secret is missing"},
		"a time of another form":   {written(map[string]any{"expiry": "hunter2"}), "expiry is not a time"},
		"a time as a number":       {written(map[string]any{"expiry": 1793534400}), "expiry is not a time"},
		"an end that never comes":  {written(map[string]any{"expiry": "9999-11-01T13:00:00Z"}), "is not a time at which"},
		"a life that is no number": {written(map[string]any{"expiry": nil, "expires_in": "1.5"}), "is not a number of"},
		"a negative life":          {written(map[string]any{"expiry": nil, "expires_in": -5}), "is not a number of"},
		"an endless life":          {written(map[string]any{"expiry": nil, "expires_in": "99999999999999999999"}), "is not a number of"},
		"an empty scope":           {written(map[string]any{"scopes": []string{""}}), "scopes has an entry"},
		"a name as an address":     {written(map[string]any{"allow_private": []string{"lan"}}), "allow_private: "},
		"too many scopes":          {written(map[string]any{"scopes": make([]string, 65)}), "more than 64"},
	} {
		s, err := Parse(c.text, now)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v, %v, want %q", name, s, err, c.want)
		} else if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "1234567") {
			t.Errorf("%s: the error quotes a value: %v", name, err)
		}
	}
}

func TestParse(t *testing.T) {
	s, err := Parse(written(map[string]any{"scopes": []string{"a", "b"}, "auth_style": "auto"}), now)
	if err != nil || s.AccessToken != "AT-hunter2" || !s.Expiry.Equal(now.Add(time.Hour+123456789)) || s.Obtained != now || s.AuthStyle != Auto || !slices.Equal(s.Scopes, []string{"a", "b"}) {
		t.Errorf("%+v, %v", s, err)
	}
	text, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Decode(text); err != nil || !slices.Equal(again.Secrets(), s.Secrets()) || !again.Expiry.Equal(s.Expiry) {
		t.Errorf("after Encode and Decode %+v, %v", again, err)
	}
	for name, changes := range map[string]map[string]any{
		"an endpoint's answer": {"expiry": nil, "expires_in": 3600, "scope": "a b"},
		"with a string":        {"expiry": nil, "expires_in": "3600", "scope": "a b"},
		"both":                 {"expiry": now.Add(time.Hour), "expires_in": 7, "scope": "a b"},
	} {
		s, err := Parse(written(changes), now)
		if err != nil || !s.Expiry.Equal(now.Add(time.Hour)) || !slices.Equal(s.Scopes, []string{"a", "b"}) {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	for name, changes := range map[string]map[string]any{
		"no end": {"expiry": nil}, "zero": {"expiry": "0001-01-01T00:00:00Z"}, "a life of 0": {"expiry": nil, "expires_in": 0},
	} {
		if s, err := Parse(written(changes), now); err != nil || !s.Expiry.IsZero() || s.Expired(now.AddDate(50, 0, 0)) || !s.RefreshAt(now, 0).IsZero() {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	if s, err := Parse(written(map[string]any{"client_secret": nil, "auth_style": "params"}), now); err != nil || len(s.Secrets()) != 2 {
		t.Errorf("a public client: %+v, %v", s, err)
	}
}

// TestParseDrops wants an endpoint's answer taken as it came, and nothing kept of what no set has.
func TestParseDrops(t *testing.T) {
	for name, member := range map[string]any{
		"id_token": "eyJhbGciOiJub25lIn0.hunter2-of-a-person.", "refresh_token_expires_in": 15897600,
	} {
		want, err := Parse(written(nil), now)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse(written(map[string]any{name: member}), now)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want what is without it: %+v", name, got, err, want)
			continue
		}
		b, err := got.Encode()
		if text := string(b); err != nil || strings.Contains(text, name) || strings.Contains(text, "of-a-person") {
			t.Errorf("%s is kept, %v", name, err)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, text := range []string{"", "null", "{}", `{"access_token":"a","refresh_token":"r"}`, "hunter2"} {
		if s, err := Decode([]byte(text)); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %+v, %v", text, s, err)
		}
	}
}

func TestHost(t *testing.T) {
	for address, c := range map[string]struct {
		private  []string
		host     string
		port     uint16
		private1 string
	}{
		"https://login.example.com/token":      {nil, "login.example.com", 443, ""},
		"https://Login.Example.COM:8443/a?b=c": {nil, "login.example.com", 8443, ""},
		"https://192.0.2.7/token":              {nil, "192.0.2.7", 443, ""},
		"https://[2001:db8::7]:444/token":      {nil, "2001:db8::7", 444, ""},
		"https://sso.corp.example/token":       {[]string{"10.1.0.0/16"}, "sso.corp.example", 443, "10.1.2.3"},
	} {
		s := Set{TokenURL: address, AllowPrivate: c.private}
		host, port, policy, err := s.Host()
		if err != nil || host != c.host || port != c.port {
			t.Errorf("%s: %q, %d, %v", address, host, port, err)
		}
		if d := policy.Decide(host, port); d.Verdict != egress.Allow {
			t.Errorf("%s: its own host is refused: %s", address, d.Reason)
		}
		for _, other := range []struct {
			host string
			port uint16
		}{{"x." + host, port}, {host, port + 1}, {"example.com", port}, {"", port}} {
			if d := policy.Decide(other.host, other.port); d.Verdict == egress.Allow {
				t.Errorf("%s: it may go to %q, port %d", address, other.host, other.port)
			}
		}
		if _, ok := policy.Vet(host, netip.MustParseAddr("10.1.2.3")); ok != (c.private1 != "") {
			t.Errorf("%s: to 10.1.2.3: %t", address, ok)
		}
	}
}

func TestRefreshAt(t *testing.T) {
	for name, c := range map[string]struct {
		obtained, expiry time.Duration // from now
		jitter           float64
		want             time.Duration
	}{
		"an hour":                     {0, time.Hour, 0, 48 * time.Minute},
		"an hour, with jitter":        {0, time.Hour, 1, 48*time.Minute - 72*time.Second},
		"twenty minutes":              {0, 20 * time.Minute, 0, 15 * time.Minute},
		"eight minutes":               {0, 8 * time.Minute, 0, 4 * time.Minute},
		"a second":                    {0, time.Second, 0, 500 * time.Millisecond},
		"thirty days":                 {0, 720 * time.Hour, 0, 576 * time.Hour},
		"expired":                     {-time.Hour, -time.Minute, 0, -12*time.Minute - 48*time.Second},
		"expired before it was given": {0, -time.Minute, 0, -6 * time.Minute},
		"the clock was ahead":         {100 * time.Hour, 101 * time.Hour, 0, 0},
		"the clock was slewed":        {30 * time.Second, time.Hour + 30*time.Second, 0, 48*time.Minute + 30*time.Second},
	} {
		s := Set{RefreshToken: "rt", Obtained: now.Add(c.obtained), Expiry: now.Add(c.expiry)}
		if got := s.RefreshAt(now, c.jitter).Sub(now); got != c.want {
			t.Errorf("%s: in %s, want %s", name, got, c.want)
		}
	}
}

func TestLacking(t *testing.T) {
	for _, tt := range []struct{ required, granted, want string }{
		{"", "", ""},
		{"a", "", "a"},
		{"a b c", "b", "a c"},
		{"a b", "b a", ""},
		{"a b", "b|a", ""},
		{"repo gist", "repo,gist", ""},
		{"a,b", "a,b", ""},
		{"repo", "Repo", "repo"},
		{"repo", "repo:read", "repo"},
		{"repo:read", "repo", "repo:read"},
		{"a", "|", "a"},
	} {
		var granted [][]string
		for list := range strings.SplitSeq(tt.granted, "|") {
			granted = append(granted, strings.Fields(list))
		}
		if got := strings.Join(Lacking(strings.Fields(tt.required), granted...), " "); got != tt.want {
			t.Errorf("%q of %q: %q are lacking, want %q", tt.required, tt.granted, got, tt.want)
		}
	}
	if got := Lacking([]string{"a", "b"}, []string{"a b"}); len(got) > 0 {
		t.Errorf("two in one entry: %q are lacking", got)
	}
}

func TestRefreshed(t *testing.T) {
	s, err := Parse(written(nil), now)
	if err != nil {
		t.Fatal(err)
	}
	const freshToken = "0123456789ABCDEF-._~+/=="
	later := now.Add(time.Hour)
	for name, r := range map[string]Answer{
		"nothing": {}, "an odd token": {AccessToken: freshToken + "\nb"}, "an odd refresh token": {AccessToken: freshToken, RefreshToken: freshToken + "\x7f"},
		"a long token": {AccessToken: strings.Repeat("a", maxToken+1)}, "a token as a scope": {AccessToken: freshToken, Scopes: []string{"x:" + freshToken}}, "an odd style": {AccessToken: freshToken, AuthStyle: "x"},
		"a word of the protocol": {AccessToken: "inputSchema"}, "such a refresh token": {AccessToken: freshToken, RefreshToken: "jsonrpc"},
		"a piece of JSON": {AccessToken: `","method":"tools/call`}, "such a refresh token too": {AccessToken: freshToken, RefreshToken: `","method":"tools/call`},
		"a backslash": {AccessToken: freshToken, RefreshToken: `0123456789abcdef\`}, "a space": {AccessToken: "Bearer 0123456789"}, "an equals sign in it": {AccessToken: "0123456=89abcdef"},
	} {
		got, err := s.Refreshed(r, later)
		if err == nil || !reflect.DeepEqual(got, s) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for name, a := range map[string]Answer{
		"no access token": {}, "an odd token": {AccessToken: freshToken + "\nb"}, "an odd style": {AccessToken: freshToken, AuthStyle: "x"},
	} {
		a.RefreshToken = "a-rotated-refresh"
		want := s
		want.RefreshToken = a.RefreshToken
		if got, err := s.Refreshed(a, later); err == nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s, with a new refresh token: %+v, %v", name, got, err)
		}
	}
	got, err := s.Refreshed(Answer{AccessToken: freshToken, ExpiresIn: 60}, later)
	if err != nil || got.AccessToken != freshToken || got.RefreshToken != s.RefreshToken || got.Obtained != later || got.Expiry != later.Add(time.Minute) || got.TokenURL != s.TokenURL || got.ClientSecret != s.ClientSecret {
		t.Errorf("without rotation: %+v, %v", got, err)
	}
	got, err = s.Refreshed(Answer{AccessToken: freshToken, RefreshToken: "a-rotated-refresh", AuthStyle: InParams, Scopes: []string{"c"}}, later)
	if err != nil || got.RefreshToken != "a-rotated-refresh" || got.AuthStyle != InParams || !slices.Equal(got.Scopes, []string{"c"}) {
		t.Errorf("with rotation: %+v, %v", got, err)
	}
	if got, err = got.Refreshed(Answer{AccessToken: freshToken, AuthStyle: InHeader, ExpiresIn: 1 << 60}, later); err != nil || got.AuthStyle != InParams || !slices.Equal(got.Scopes, []string{"c"}) || got.Expiry.Sub(later) > unlimited {
		t.Errorf("a known style, and a life without end: %+v, %v", got, err)
	}
}

// TestRefreshedWithoutALife: an answer need not say how long its token lives, and the set is refreshed all the same.
func TestRefreshedWithoutALife(t *testing.T) {
	later := now.Add(time.Hour)
	for name, c := range map[string]struct{ obtained, expiry, want time.Time }{
		"as long as before":          {now, now.Add(time.Hour), later.Add(time.Hour)},
		"stored just before it":      {now, now.Add(time.Second), later.Add(leastLife)},
		"stored when it had ended":   {now, now.Add(-time.Hour), later.Add(leastLife)},
		"it is not known since when": {time.Time{}, now.Add(time.Hour), later.Add(leastLife)},
		"it never had an end":        {now, time.Time{}, time.Time{}},
	} {
		s, err := Parse(written(nil), now)
		if err != nil {
			t.Fatal(err)
		}
		s.Obtained, s.Expiry = c.obtained, c.expiry
		got, err := s.Refreshed(Answer{AccessToken: "0123456789abcdef"}, later)
		if err != nil || !got.Expiry.Equal(c.want) || (got.Unrefreshed() != "") != c.want.IsZero() {
			t.Errorf("%s: until %s, %q, %v; want %s", name, got.Expiry, got.Unrefreshed(), err, c.want)
		}
		if at := got.RefreshAt(later, 0); at.IsZero() != c.want.IsZero() || !at.IsZero() && !at.After(later) {
			t.Errorf("%s: refreshed at %s", name, at)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(written(nil))
	f.Add([]byte(`{"scopes":[],"allow_private":["::1"],"expires_in":"1e9"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Parse(text, now)
		if err != nil {
			return
		}
		again, err := s.Encode()
		if err != nil {
			t.Fatalf("what was parsed cannot be encoded: %v", err)
		}
		if _, err := Decode(again); err != nil {
			t.Fatalf("what was encoded cannot be decoded: %v", err)
		}
	})
}
