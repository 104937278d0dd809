package vault

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"filippo.io/age"
)

func importing(t *testing.T, v *Vault, replace bool, pairs ...string) (map[string]Outcome, error) {
	t.Helper()
	var list []string
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, fmt.Sprintf(`{"key":%q,"value":%q}`, pairs[i], base64.StdEncoding.EncodeToString([]byte(pairs[i+1]))))
	}
	changes, err := v.Import([]byte(`{"format":"pfar-vault-1","secrets":[`+strings.Join(list, ",")+`]}`), replace)
	got := map[string]Outcome{}
	for _, c := range changes {
		got[c.Key] = c.Outcome
	}
	return got, err
}

func TestImportsThatAreRefused(t *testing.T) {
	v := open(t, t.TempDir()+"/vault")
	if err := v.Set("a", []byte("first-of-a")); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"nothing":         ``,
		"no JSON":         `hunter2`,
		"another format":  `{"format":"pfar-vault-9","secrets":[{"key":"b","value":"aHVudGVyMg=="}]}`,
		"no secrets":      `{"format":"pfar-vault-1","secrets":[]}`,
		"not base64":      `{"format":"pfar-vault-1","secrets":[{"key":"b","value":"hunter2!"}]}`,
		"a path":          `{"format":"pfar-vault-1","secrets":[{"key":"../b","value":"aHVudGVyMg=="}]}`,
		"the seed":        `{"format":"pfar-vault-1","secrets":[{"key":".seed","value":"aHVudGVyMg=="}]}`,
		"a NUL":           `{"format":"pfar-vault-1","secrets":[{"key":"c","value":"aHVudGVyMg=="},{"key":"b","value":"AGE="}]}`,
		"an empty value":  `{"format":"pfar-vault-1","secrets":[{"key":"c","value":"aHVudGVyMg=="},{"key":"b","value":""}]}`,
		"an unknown kind": `{"format":"pfar-vault-1","secrets":[{"key":"b","kind":"x509","value":"aHVudGVyMg=="}]}`,
		"no token set":    `{"format":"pfar-vault-1","secrets":[{"key":"b","value":"aHVudGVyMg=="},{"key":"c","kind":"oauth","value":"` + encoded(`{"access_token":"hunter2"`) + `"}]}`,
		"half a one":      `{"format":"pfar-vault-1","secrets":[{"key":"b","value":"aHVudGVyMg=="},{"key":"c","kind":"oauth","value":"` + encoded(`{"access_token":"hunter2","refresh_token":"rt"}`) + `"}]}`,
		"a key twice":     `{"format":"pfar-vault-1","secrets":[{"key":"b","value":"aHVudGVyMg=="},{"key":"b","value":"aHVudGVyMg=="}]}`,
	} {
		changes, err := v.Import([]byte(text), true)
		if !errors.Is(err, ErrInvalid) || changes != nil {
			t.Errorf("%s: %v, %v", name, changes, err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error quotes a value: %v", name, err)
		}
	}
	if _, err := importing(t, v, false, "b", "of-b", "a", "another-a"); !errors.Is(err, ErrExists) || !strings.Contains(err.Error(), "imported: a:") {
		t.Errorf("another value is imported: %v", err)
	}
	if keys, err := v.Keys(); err != nil || strings.Join(keys, " ") != "a" {
		t.Errorf("the vault holds %q, %v", keys, err)
	}
	if got, err := v.Deliver("a"); err != nil || string(got) != "first-of-a" {
		t.Errorf("a is %q, %v", got, err)
	}
}

func encoded(value string) string { return base64.StdEncoding.EncodeToString([]byte(value)) }

// tokenSet is one as the vault holds it.
const tokenSet = `{"access_token":"of-b","refresh_token":"rt","token_url":"https://login.example/t","client_id":"id"}`

func TestExportAndImport(t *testing.T) {
	from, to := open(t, t.TempDir()+"/vault"), open(t, t.TempDir()+"/vault")
	for k, value := range map[string]string{"a": "of-a", "b": tokenSet, "c": "of-c"} {
		if _, err := from.Put(Secret{Key: k, Kind: map[string]Kind{"b": OAuth}[k], Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := from.Seed(); err != nil {
		t.Fatal(err)
	}
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	carry := func(keys ...string) ([]byte, error) {
		sealed, err := from.Export(keys, id.Recipient().String())
		if err != nil {
			return nil, err
		}
		if strings.Contains(string(sealed), "of-a") {
			t.Error("a value is in the clear")
		}
		return decrypt(sealed, id)
	}
	if _, err := carry("a", "none"); !errors.Is(err, ErrNotFound) {
		t.Errorf("what is not there is exported: %v", err)
	}
	if _, err := from.Export(nil, "age1nonsense"); !errors.Is(err, ErrInvalid) {
		t.Errorf("exported to nobody: %v", err)
	}
	if _, err := to.Export(nil, id.Recipient().String()); !errors.Is(err, ErrNotFound) {
		t.Errorf("an empty vault is exported: %v", err)
	}
	text, err := carry()
	if err != nil {
		t.Fatal(err)
	}
	if err := to.Set("b", []byte(tokenSet)); err != nil { // plain
		t.Fatal(err)
	}
	if err := to.Set("c", []byte("of-c")); err != nil {
		t.Fatal(err)
	}
	changes, err := to.Import(text, true)
	if want := []Change{{"a", New}, {"b", Changed}, {"c", Equal}}; err != nil || !reflect.DeepEqual(changes, want) {
		t.Errorf("imported %v, %v; want %v", changes, err, want)
	}
	for _, k := range []string{"a", "b", "c"} {
		want, err1 := from.Read(k)
		got, err2 := to.Read(k)
		if k == "c" {
			got.Stored = want.Stored // it is the one that was there
		}
		if err1 != nil || err2 != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %+v, want %+v (%v, %v)", k, got, want, err1, err2)
		}
	}
	var b contents
	if text, err = carry("b", "b"); err != nil || json.Unmarshal(text, &b) != nil || len(b.Secrets) != 1 || b.Secrets[0].Key != "b" {
		t.Errorf("b alone is %s, %v", text, err)
	}
}
