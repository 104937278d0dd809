// Package oneline has HCL read blocks with several arguments on one line, as in tool "send_*" { effect = "none",
// audience = "public" }, which its grammar does not have.
package oneline

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// Block is the head of a block that is now an attribute.
type Block struct {
	Type        string
	TypeRange   hcl.Range
	Labels      []string
	LabelRanges []hcl.Range // with the quotes
}

// Rewrite makes each such block an attribute whose value is an object: trust { a = true, b = false } becomes
// trust = { a = true, b = false }, and one with labels an attribute of a name of our own, by which Block has what stood
// there. No byte moves, so every place stays what it is.
func Rewrite(src []byte, tokens hclsyntax.Tokens) ([]byte, map[string]Block) {
	out, blocks := slices.Clone(src), map[string]Block{}
	for i := range tokens {
		if i > 0 && tokens[i-1].Type != hclsyntax.TokenNewline && tokens[i-1].Type != hclsyntax.TokenComment {
			continue
		}
		head, open, ok := headAt(tokens[i:])
		if !ok || !manyArguments(tokens[i+open+1:]) {
			continue
		}
		from, to := head.TypeRange.End.Byte, tokens[i+open].Range.Start.Byte
		if to == from {
			continue
		}
		if len(head.Labels) == 0 {
			out[to-1] = '='
			continue
		}
		if name, ok := nameOf(head, to-from-1, len(blocks), src); ok {
			copy(out[head.TypeRange.Start.Byte:], name)
			out[to-1] = '='
			blocks[name] = head
		}
	}
	return out, blocks
}

// headAt reads a block's type and labels up to its brace, which is the token that it returns the index of.
func headAt(tokens hclsyntax.Tokens) (Block, int, bool) {
	if len(tokens) == 0 || tokens[0].Type != hclsyntax.TokenIdent {
		return Block{}, 0, false
	}
	head := Block{Type: string(tokens[0].Bytes), TypeRange: tokens[0].Range}
	for i := 1; i < len(tokens); {
		switch {
		case tokens[i].Type == hclsyntax.TokenOBrace:
			return head, i, true
		case i+2 < len(tokens) && tokens[i].Type == hclsyntax.TokenOQuote && tokens[i+1].Type == hclsyntax.TokenQuotedLit && tokens[i+2].Type == hclsyntax.TokenCQuote:
			label := string(tokens[i+1].Bytes)
			for _, c := range []byte(label) {
				if c < ' ' || c == '\\' || c == '$' || c == '%' || c > '~' { // what is read as something else than is written, or takes other columns
					return Block{}, 0, false
				}
			}
			head.Labels = append(head.Labels, label)
			head.LabelRanges = append(head.LabelRanges, hcl.RangeBetween(tokens[i].Range, tokens[i+2].Range))
			i += 3
		default:
			return Block{}, 0, false
		}
	}
	return Block{}, 0, false
}

// nameOf is an identifier that the file does not have, as long as the block's type and room.
func nameOf(head Block, room, n int, src []byte) (string, bool) {
	for {
		digits := strconv.FormatInt(int64(n), 36)
		if len(digits) >= room {
			return "", false
		}
		name := head.Type + strings.Repeat("-", room-len(digits)) + digits
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
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen, hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl:
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
