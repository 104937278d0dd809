package inspector

import (
	"strings"
	"testing"
)

func TestAccount(t *testing.T) {
	good := func() External {
		return External{
			Name: "home", URL: "https://matrix.example.org", Key: "vault:matrix_token",
			Role: Role{Account: &Account{User: "@pfar:example.org", Owner: "@ada:example.org"}},
		}
	}
	e, err := good().Declared()
	if err != nil || e.Kind() != "chat" || e.String() != "chat home" {
		t.Fatalf("%s: %v", e, err)
	}
	if host, port, _, err := e.Egress(); host != "matrix.example.org" || port != 443 || err != nil {
		t.Errorf("it reaches %s:%d, %v", host, port, err)
	}
	for want, change := range map[string]func(*External){
		"user is missing":                            func(e *External) { e.Account.User = "" },
		`user "pfar" is not a Matrix account`:        func(e *External) { e.Account.User = "pfar" },
		`owner "@ada" is not a Matrix account`:       func(e *External) { e.Account.Owner = "@ada" },
		`owner "@ada:a b" is not a Matrix`:           func(e *External) { e.Account.Owner = "@ada:a b" },
		"owner is the account that pfar uses itself": func(e *External) { e.Account.Owner = e.Account.User },
		"key is missing":                             func(e *External) { e.Key = "" },
		`key is not the name of a secret`:            func(e *External) { e.Key = "syt_secret" },
		"url is missing":                             func(e *External) { e.URL = "" },
		"want https, or 127.0.0.1":                   func(e *External) { e.URL = "http://matrix.example.org" },
		"has more than a host":                       func(e *External) { e.URL = "https://matrix.example.org/_matrix" },
		"neither a program nor a model":              func(e *External) { e.Model = "small" },
		"allow_private":                              func(e *External) { e.AllowPrivate = []string{"x"} },
		"is not a name: want lower-case letters":     func(e *External) { e.Name = "Home" },
	} {
		bad := good()
		change(&bad)
		_, err := bad.Declared()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "syt_") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
