package declaration

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"

	"github.com/pfar/pfar/policies/access"
)

// RenderClient writes a declaration in HCL that ParseClient reads as that client. What is said of single servers, and
// the tokens' place in a list that was there, it does not know.
func RenderClient(c Client) []byte {
	var b bytes.Buffer
	line := func(key, value string) { fmt.Fprintf(&b, "%-12s = %s\n", key, value) }
	if c.Description != "" {
		line("description", Text(c.Description))
	}
	if len(c.Tokens) > 0 {
		line("token_sha256", tokenList(c.Tokens))
	}
	if len(c.UIDs) > 0 {
		line("uid", strings.Join(strings.Fields(fmt.Sprint(c.UIDs)), ", "))
	}
	line("servers", hclTexts(c.Servers))
	line("profile", Text(c.Profile))
	if c.Connect {
		line("connect", "true")
	}
	if c.Relax != "" {
		line("relax", Text(c.Relax))
	}
	if c.Search {
		line(toolsSection, Text(searchWord))
	}
	if len(c.Allow)+len(c.Hide) > 0 {
		b.WriteString("\ntools {\n")
		if len(c.Allow) > 0 {
			b.WriteString("  allow = " + hclTexts(c.Allow) + "\n")
		}
		if len(c.Hide) > 0 {
			b.WriteString("  hide  = " + hclTexts(c.Hide) + "\n")
		}
		b.WriteString("}\n")
	}
	return b.Bytes()
}

// WithTokens returns the source of a client's declaration with these tokens in place of those it has. Every other byte
// stays.
func WithTokens(filename string, src []byte, tokens []access.Digest) ([]byte, error) {
	return withValue(filename, src, "token_sha256", tokenList(tokens))
}

// WithServers returns the source of a client's declaration with these servers in place of those it has. Every other
// byte stays.
func WithServers(filename string, src []byte, servers []string) ([]byte, error) {
	return withValue(filename, src, "servers", hclTexts(servers))
}

// WithConnect returns the source of a client's declaration that says whether it has pfar__connect. Every other byte
// stays.
func WithConnect(filename string, src []byte, connect bool) ([]byte, error) {
	return withValue(filename, src, "connect", strconv.FormatBool(connect))
}

// withValue has a value, as HCL and TOML write it, in the place of a key's value. A declaration that would be wrong is
// refused.
func withValue(filename string, src []byte, key, value string) ([]byte, error) {
	c, diags := ParseClient(filename, src)
	if c == nil {
		return nil, diags
	}
	at, said := c.places[key]
	var b []byte
	if said {
		b = append(append(append(b, src[:at.Start.Byte]...), value...), src[at.End.Byte:]...)
	} else {
		b = append([]byte(key+" = "+value+"\n"), src...)
	}
	changed, diags := ParseClient(filename, b)
	if changed == nil {
		return nil, diags
	}
	return b, nil
}

func tokenList(tokens []access.Digest) string {
	words := make([]string, len(tokens))
	for i, t := range tokens {
		words[i] = t.String()
	}
	return hclTexts(words)
}

func hclTexts(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = Text(w)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// Text writes a string as HCL reads it back.
func Text(s string) string {
	return string(hclwrite.TokensForValue(cty.StringVal(s)).Bytes())
}
