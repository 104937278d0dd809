package vault

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

// quotes reports whether an error has a piece of a text in it, beside what it is known to name.
func quotes(err error, text []byte, named ...string) bool {
	words := err.Error()
	for _, n := range named {
		words = strings.ReplaceAll(words, n, "")
	}
	const piece = 12
	for i := 0; i+piece <= len(text); i++ {
		if strings.Contains(words, string(text[i:i+piece])) && strings.TrimSpace(string(text[i:i+piece])) != "" {
			return true
		}
	}
	return false
}

// FuzzParseSecret: what is read of a secret's file is under its own key, in bounds, and the same when it is written and
// read again; what cannot be read is not quoted.
func FuzzParseSecret(f *testing.F) {
	for _, seed := range []string{
		"hunter2", "", `{"pfar_secret":1,"key":"k","kind":"plain","stored":"2026-01-02T03:04:05Z","value":"aHVudGVyMg=="}`, `{"pfar_secret":1,"key":"other","value":"eA=="}`, `{"pfar_secret":2,"key":"k","value":"eA=="}`,
		`{"pfar_secret":1,"key":"k","value":"eA==","value":""}`, `{"pfar_secret":1,"key":"k"}`, `{"pfar_secret":1,"key":"k","value":"not base64, but long enough to be quoted"}`, `{"pfar_secret":1} x`, " {\"pfar_secret\":1}", "a\x00b",
		`{"pfar_secret":1,"key":"k","kind":"odd","value":"eA=="}`,
	} {
		f.Add([]byte(seed))
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parseSecret("k", text, at)
		if err != nil {
			if quotes(err, text, "decrypting secret", "it is not as this version of pfar writes secrets", "its file is that of secret", `"k"`) && !strings.Contains(err.Error(), "its file is that") {
				t.Errorf("%q: %v", text, err)
			}
			if !reflect.DeepEqual(s, Secret{}) {
				t.Errorf("%v, and %+v", err, s)
			}
			return
		}
		if s.Key != "k" || len(s.Value) == 0 || len(s.Value) > maxSecret {
			t.Fatalf("%q is %+v", text, s)
		}
		if !bytes.HasPrefix(text, mark) && (!bytes.Equal(s.Value, text) || s.Kind != Plain) {
			t.Errorf("%q is %+v", text, s)
		}
		written, err := json.Marshal(stored{1, s})
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(written, mark) {
			t.Errorf("%s is taken for a value alone", written)
		}
		again, err := parseSecret("k", written, time.Time{})
		if err != nil || !again.Stored.Equal(s.Stored) || again.Kind != s.Kind || !bytes.Equal(again.Value, s.Value) {
			t.Errorf("%+v is read again as %+v, %v", s, again, err)
		}
	})
}

// FuzzReadBundle: what is read of a bundle is fit to be stored, each key once, and what cannot be read is refused as
// such.
func FuzzReadBundle(f *testing.F) {
	for _, seed := range []string{
		"", "{}", `{"format":"pfar-vault-1","secrets":[]}`, `{"format":"pfar-vault-1","secrets":[{"key":"a","value":"eA=="}]}`, `{"format":"pfar-vault-1","secrets":[{"key":"a","value":"eA=="},{"key":"a","value":"eQ=="}]}`,
		`{"format":"pfar-vault-1","secrets":[{"key":"../a","value":"eA=="}]}`, `{"format":"pfar-vault-2","secrets":[{"key":"a","value":"eA=="}]}`, `{"format":"pfar-vault-1","secrets":[{"key":"a","kind":"oauth","value":"e30="}]}`,
		`{"format":"pfar-vault-1","secrets":[null]}`, `{"format":"pfar-vault-1","secrets":[{"key":"a","value":"AA=="}]}`, `{"format":"pfar-vault-1","secrets":[{"key":"a","stored":"9999-12-31T23:59:59Z","value":"eA=="}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := readBundle(text)
		if err != nil {
			if !errors.Is(err, ErrInvalid) || list != nil {
				t.Errorf("%q: %v, and %d secrets", text, err, len(list))
			}
			return
		}
		keys := map[string]bool{}
		for _, s := range list {
			if keys[s.Key] || checkKey(s.Key) != nil || len(s.Value) == 0 || len(s.Value) > maxSecret || bytes.IndexByte(s.Value, 0) >= 0 || s.Kind != Plain && s.Kind != OAuth {
				t.Errorf("%q holds %+v", text, s)
			}
			keys[s.Key] = true
		}
		written, err := json.Marshal(contents{bundleFormat, list})
		if err != nil {
			t.Fatalf("%q is %+v, which cannot be exported: %v", text, list, err)
		}
		if again, err := readBundle(written); err != nil || !reflect.DeepEqual(again, list) {
			t.Errorf("%+v is read again as %+v, %v", list, again, err)
		}
	})
}

// FuzzParseKey: a key's text is one identity, or two, that are written as they are read, and is never quoted.
func FuzzParseKey(f *testing.F) {
	one, err := NewKey()
	if err != nil {
		f.Fatal(err)
	}
	two, err := NewKey()
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range [][]byte{one, append(bytes.Clone(one), two...), append(append(bytes.Clone(one), two...), one...), bytes.ToLower(one), one[:len(one)-2], append([]byte("# a comment\n\n"), one...), nil, []byte("AGE-SECRET-KEY-1")} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		ids, err := parseKey(text)
		if err != nil {
			if ids != nil || quotes(err, text, "the key is not one age identity, or two of a change of keys") {
				t.Errorf("%q: %v, and %d identities", text, err, len(ids))
			}
			return
		}
		if len(ids) != 1 && len(ids) != 2 {
			t.Fatalf("%d identities", len(ids))
		}
		if again, err := parseKey(keyText(ids...)); err != nil || !reflect.DeepEqual(again, ids) {
			t.Errorf("written and read again: %v", err)
		}
	})
}
