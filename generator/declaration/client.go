package declaration

import (
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/access"
)

// Client is one declaration of clients.d, complete and valid: every default is filled in.
type Client struct {
	access.Client
	Description string

	places map[string]hcl.Range
}

// Place returns where the file gives a key, as Server.Place does.
func (c *Client) Place(key string) hcl.Range {
	if at, ok := c.places[key]; ok {
		return at
	}
	return hcl.Range{Filename: c.File, Start: hcl.InitialPos, End: hcl.InitialPos}
}

// clientNameFault says what is wrong with a name. It stands in URLs, file names and logs.
func clientNameFault(s string) string {
	switch {
	case s == "":
		return "is empty"
	case len(s) > MaxName:
		return "is longer than the 23 characters that a name may have"
	case s[0] < 'a' || s[0] > 'z':
		return "does not begin with a letter from a to z"
	case strings.HasSuffix(s, "-"), strings.Contains(s, "--"):
		return `has a "-" that stands between no letters`
	case !namePattern.MatchString(s):
		return "holds other characters than a to z, 0 to 9 and -"
	}
	return ""
}

// ClientNameFault says what is wrong with the name of a client, "" for nothing.
func ClientNameFault(s string) string { return clientNameFault(s) }

func clientNameNear(s string) string {
	if near := validNameNear(s); near != "my-server" {
		return near
	}
	return "my-client"
}
