package access

import (
	"fmt"
	"slices"
	"strings"
)

// Identity says in words how a program proves that it is this client, and whether its model may ask for new services.
func (c Client) Identity() string {
	if !c.Enabled {
		return "disabled"
	}
	var words []string
	switch c.Name {
	case Default:
		words = append(words, "endpoint's token")
	case Operator:
		words = append(words, "you: pfar call")
	}
	switch n := len(c.Tokens); n {
	case 0:
	case 1:
		words = append(words, "1 token")
	default:
		words = append(words, fmt.Sprint(n, " tokens"))
	}
	if len(c.UIDs) > 0 {
		words = append(words, "uid "+strings.Trim(fmt.Sprint(c.UIDs), "[]"))
	}
	if c.Connect {
		words = append(words, "may ask to connect services")
	}
	return strings.Join(words, ", ")
}

// ServersInWords are the servers that a client may use.
func (c Client) ServersInWords() string {
	switch {
	case slices.Contains(c.Servers, Every):
		return "all"
	case len(c.Servers) == 0:
		return "none"
	}
	return strings.Join(c.Servers, " ")
}

// ToolsInWords says whether a client may use all tools of its servers; "": it has no servers.
func (c Client) ToolsInWords() string {
	switch {
	case len(c.Servers) == 0:
		return ""
	case c.Rights().All(), len(c.Allow)+len(c.Hide)+len(c.Settings) == 0:
		return "all"
	}
	return "some"
}
