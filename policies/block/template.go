package block

import (
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// template returns the string that an HCL template stands for. Files hold values: no functions, no conditions, no other
// variables than the one, which would make a file mean different things at different times.
func (f *File) template(expr hclsyntax.Expression) (string, bool) {
	switch e := expr.(type) {
	case *hclsyntax.LiteralValueExpr:
		if s, ok := literalText(e); ok {
			return s, true
		}
	case *hclsyntax.TemplateWrapExpr:
		return f.part(e.Wrapped)
	case *hclsyntax.TemplateExpr:
		var s strings.Builder
		ok := true
		for _, p := range e.Parts {
			v, good := literalText(p)
			if !good {
				v, good = f.part(p)
			}
			ok = ok && good
			s.WriteString(v)
		}
		return s.String(), ok
	}
	return f.part(expr)
}

func literalText(expr hclsyntax.Expression) (string, bool) {
	lit, ok := expr.(*hclsyntax.LiteralValueExpr)
	if !ok || lit.Val.Type() != cty.String || lit.Val.IsNull() {
		return "", false
	}
	return lit.Val.AsString(), true
}

// part returns the value of one ${...}.
func (f *File) part(expr hclsyntax.Expression) (string, bool) {
	at := expr.Range()
	tr, ok := expr.(*hclsyntax.ScopeTraversalExpr)
	switch {
	case !ok || f.Variable.Name == "":
		f.Problem(at, "Not a plain value", "%s", f.Says.Template)
	case tr.Traversal.RootName() != f.Variable.Name || len(tr.Traversal) > 1:
		name := strings.TrimSpace(string(at.SliceBytes(f.Bytes)))
		also := ""
		if capitals.MatchString(name) {
			also = f.Variable.Capital
		}
		f.Problem(at, "Unknown variable", f.Variable.Unknown+also, Quote(name), name)
	case f.Variable.Value == "":
		f.Problem(at, "Unknown variable", "%s", f.Variable.None)
	default:
		return f.Variable.Value, true
	}
	return "", false
}
