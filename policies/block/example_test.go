package block_test

import (
	"fmt"

	"github.com/pfar/pfar/policies/block"
)

// Both syntaxes are read by one description of keys, and every mistake is told with its place.
func Example() {
	says := block.Sentences{
		WrongType: "%s takes %s, not %s. Write %s.", Truth: "true or false", Empty: "%s is empty. Write %s.",
	}
	for _, file := range []struct{ name, text string }{
		{"good.hcl", "name = \"scan\"\nlimits {\n  strict = true\n}\n"},
		{"good.toml", "name = \"scan\"\n[limits]\nstrict = true\n"},
		{"bad.hcl", "nmae = \"scan\"\nlimits {\n  strict = 1\n}\n"},
		{"bad.toml", "name = \" \"\n[limits]\nstrict = \"yes\"\n"},
	} {
		var name string
		var strict bool
		r := block.NewReader(block.NewFile(file.name, []byte(file.text), block.Language{Says: says}))
		limits := block.Section{Name: "limits", Keys: []block.Key{
			{Name: "strict", Example: "true", Value: r.SetTruth(&strict)},
		}}
		r.Section(block.Section{Top: true, Keys: []block.Key{
			{Name: "name", Example: `"scan"`, Value: r.SetLine(&name)},
			{Name: "limits", Example: "limits { strict = true }", Value: func(f *block.Field) { r.Section(limits, f.Val) }},
		}}, r.Tree())
		for _, d := range r.Finish() {
			fmt.Printf("%s: %s: %s\n", d.Subject, d.Summary, d.Detail)
		}
		if len(r.Diags) == 0 {
			fmt.Println(file.name, name, strict, r.Places["limits.strict"])
		}
	}
	// Output:
	// good.hcl scan true good.hcl:3,12-16
	// good.toml scan true good.toml:3,10-14
	// bad.hcl:1,1-5: Unknown key: "nmae" is not known at the top. Did you mean name? Write name = "scan".
	// bad.hcl:3,12-13: Wrong type: strict takes true or false, not a number. Write strict = true.
	// bad.toml:1,8-11: Empty value: name is empty. Write name = "scan".
	// bad.toml:3,10-15: Wrong type: strict takes true or false, not a string. Write strict = true.
}
