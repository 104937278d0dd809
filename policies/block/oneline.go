package block

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// rewrite has HCL read blocks with several arguments on one line, which its grammar does not have:
//
//	tool "send_*" { effect = "none", audience = "public" }
//
// Each becomes an attribute whose value is an object, as in trust = { ... }. Where a block has labels, the attribute
// has a name of our own, by which the map has what stood there. No byte moves, so every place stays what it is.
func rewrite(src []byte, tokens hclsyntax.Tokens) ([]byte, map[string]*Field) {
	out, blocks := slices.Clone(src), map[string]*Field{}
	for i := range tokens {
		if i > 0 && tokens[i-1].Type != hclsyntax.TokenNewline && tokens[i-1].Type != hclsyntax.TokenComment {
			continue
		}
		head, open, ok := headAt(tokens[i:])
		if !ok || !manyArguments(tokens[i+open+1:]) {
			continue
		}
		from, to := head.At.End.Byte, tokens[i+open].Range.Start.Byte
		if to == from {
			continue
		}
		if len(head.Labels) == 0 {
			out[to-1] = '='
			continue
		}
		if name, ok := nameOf(head, to-from-1, len(blocks), src); ok {
			copy(out[head.At.Start.Byte:], name)
			out[to-1] = '='
			blocks[name] = head
		}
	}
	return out, blocks
}

// headAt reads a block's type and labels up to its brace, which is the token that it returns the index of.
func headAt(tokens hclsyntax.Tokens) (*Field, int, bool) {
	if len(tokens) == 0 || tokens[0].Type != hclsyntax.TokenIdent {
		return nil, 0, false
	}
	head := &Field{Key: string(tokens[0].Bytes), At: tokens[0].Range}
	for i := 1; i < len(tokens); i += 3 {
		if tokens[i].Type == hclsyntax.TokenOBrace {
			return head, i, true
		}
		if i+2 >= len(tokens) || tokens[i].Type != hclsyntax.TokenOQuote ||
			tokens[i+1].Type != hclsyntax.TokenQuotedLit || tokens[i+2].Type != hclsyntax.TokenCQuote {
			break
		}
		// What is read as something else than is written, or takes other columns, is left alone.
		label := string(tokens[i+1].Bytes)
		if strings.ContainsAny(label, `\$%`) || strings.ContainsFunc(label, func(r rune) bool { return r < ' ' || r > '~' }) {
			break
		}
		head.Labels = append(head.Labels, Label{label, hcl.RangeBetween(tokens[i].Range, tokens[i+2].Range)})
	}
	return nil, 0, false
}

// nameOf is an identifier that the file does not have, as long as the block's type and room.
func nameOf(head *Field, room, n int, src []byte) (string, bool) {
	for {
		digits := strconv.FormatInt(int64(n), 36)
		if len(digits) >= room {
			return "", false
		}
		name := head.Key + strings.Repeat("-", room-len(digits)) + digits
		if !bytes.Contains(src, []byte(name)) {
			return name, true
		}
		n++
	}
}

// manyArguments reports whether a block whose brace was just opened ends on its line and has a comma of its own.
func manyArguments(tokens hclsyntax.Tokens) bool {
	depth, comma := 0, false
	for _, t := range tokens {
		switch t.Type {
		case hclsyntax.TokenNewline, hclsyntax.TokenEOF:
			return false
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen,
			hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl:
			depth++
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenTemplateSeqEnd:
			if depth == 0 {
				return comma
			}
			depth--
		case hclsyntax.TokenComma:
			comma = comma || depth == 0
		}
	}
	return false
}
