package declaration

import (
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// serversVariable is the one variable: the folder that installed servers live in.
const serversVariable = "servers"

// template returns the string that an HCL template stands for. Declarations hold values: no functions, no conditions,
// no other variables, which would make a file mean different things at different times.
func (b *builder) template(expr hclsyntax.Expression) (string, bool) {
	switch e := expr.(type) {
	case *hclsyntax.LiteralValueExpr:
		if e.Val.Type() == cty.String && !e.Val.IsNull() {
			return e.Val.AsString(), true
		}
	case *hclsyntax.TemplateWrapExpr:
		return b.part(e.Wrapped)
	case *hclsyntax.TemplateExpr:
		var s strings.Builder
		ok := true
		for _, p := range e.Parts {
			if lit, is := p.(*hclsyntax.LiteralValueExpr); is && lit.Val.Type() == cty.String && !lit.Val.IsNull() {
				s.WriteString(lit.Val.AsString())
				continue
			}
			v, good := b.part(p)
			ok = ok && good
			s.WriteString(v)
		}
		return s.String(), ok
	}
	return b.part(expr)
}

// part returns the value of one ${...}.
func (b *builder) part(expr hclsyntax.Expression) (string, bool) {
	at := expr.Range()
	tr, ok := expr.(*hclsyntax.ScopeTraversalExpr)
	if !ok {
		b.report(problem(at, "Not a plain value", `A string holds text and ${servers}, nothing that is computed. Write $${ for the characters "${", %%%%{ for "%%{".`))
		return "", false
	}
	name := tr.Traversal.RootName()
	if name != serversVariable || len(tr.Traversal) > 1 {
		name = strings.TrimSpace(string(at.SliceBytes(b.src.bytes)))
		d := problem(at, "Unknown variable", `%s is not known: ${servers}, the folder of installed servers, is the only variable. Write $${%[2]s} for these characters themselves.`, quote(name), name)
		if variableName.MatchString(name) && name == strings.ToUpper(name) {
			d.Detail += ` In env and auth, a whole value "$` + name + `" is a variable of pfar's environment.`
		}
		b.report(d)
		return "", false
	}
	if b.options.Servers == "" {
		b.report(problem(at, "Unknown variable", "No folder of installed servers was given, so ${servers} stands for nothing. Write the path itself."))
		return "", false
	}
	return b.options.Servers, true
}

// maxNesting is four times what the schema can use. The parser of HCL is recursive without a bound, and a Go stack that
// overflows takes the process with it.
const maxNesting = 16

// tooDeep finds what the parser must not be given.
func tooDeep(tokens hclsyntax.Tokens) *hcl.Diagnostic {
	depth, signs := 0, 0
	for _, t := range tokens {
		switch t.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen, hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl:
			depth++
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenTemplateSeqEnd:
			depth--
		}
		switch t.Type {
		case hclsyntax.TokenMinus, hclsyntax.TokenBang, hclsyntax.TokenQuestion:
			signs++
		case hclsyntax.TokenNewline, hclsyntax.TokenComma:
			signs = 0
		}
		if depth > maxNesting || signs > maxNesting || t.Type == hclsyntax.TokenTemplateControl {
			return problem(t.Range, "Not a plain value", "Declarations hold plain strings, numbers, lists and blocks, at most %d within each other. Write the value itself, and %%%%{ for the characters \"%%{\" in a string.", maxNesting)
		}
	}
	return nil
}
