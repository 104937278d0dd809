package schema

import (
	"fmt"
	"strings"
	"testing"
)

const readFile = `{"type":"object","properties":{"path":{"type":"string"},"head":{"type":"integer","minimum":1},"tail":{"type":"number"},` +
	`"mode":{"type":"string","enum":["text","binary"]}},"required":["path"],"additionalProperties":false,"$schema":"http://json-schema.org/draft-07/schema#"}`

func benchmarkCheck(b *testing.B, schema, value string) {
	s := compiled(b, schema)
	b.SetBytes(int64(len(value)))
	b.ReportAllocs()
	raw := []byte(value)
	for b.Loop() {
		if v := s.Check(raw); v != nil {
			b.Fatal(v)
		}
	}
}

func BenchmarkTrivial(b *testing.B) {
	benchmarkCheck(b, `{"type":"object"}`, `{"content":[{"type":"text","text":"`+strings.Repeat("x", 64<<10)+`"}]}`)
}

func BenchmarkCheckSmall(b *testing.B) {
	benchmarkCheck(b, readFile, `{"path":"/var/lib/pfar/state/notes/today.md","head":20,"mode":"text"}`)
}

func BenchmarkCheck64KiB(b *testing.B) {
	benchmarkCheck(b, readFile, `{"path":"`+strings.Repeat("lorem ipsum dolor ", 3640)+`"}`)
}

// BenchmarkCheckRows is a result of 40,000 values, which a meter goes over.
func BenchmarkCheckRows(b *testing.B) {
	row := `{"id":12345,"name":"a name","tags":["x","y"],"note":null}`
	schema := `{"type":"object","properties":{"rows":{"type":"array","items":{"type":"object","properties":{"id":{"type":"integer"},` +
		`"name":{"type":"string","maxLength":100},"tags":{"type":"array","items":{"type":"string"}},"note":{"anyOf":[{"type":"string"},{"type":"null"}]}},` +
		`"required":["id","name"]}}},"required":["rows"]}`
	benchmarkCheck(b, schema, `{"rows":[`+strings.Repeat(row+",", 3999)+row+`]}`)
}

func BenchmarkCompileSmall(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		compiled(b, readFile)
	}
}

// largest is a schema near all bounds.
func largest() string {
	var s strings.Builder
	s.WriteString(`{"type":"object","properties":{`)
	for i := 0; i < 2600; i++ {
		if i > 0 {
			s.WriteByte(',')
		}
		fmt.Fprintf(&s, `"property%04d":{"type":"string","description":"d","minLength":1,"items":true,"not":{"const":"y"}}`, i)
	}
	s.WriteString(`}}`)
	return s.String()
}

func BenchmarkCompile256KiB(b *testing.B) {
	text := largest()
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		compiled(b, text)
	}
}

// The most that a check may cost: every step fails, and its error is kept.
func BenchmarkCheckWorst(b *testing.B) {
	s := compiled(b, `{"items":{"type":"string"}}`)
	raw := []byte(`[` + strings.Repeat("1,", 200_000) + `1]`)
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if v := s.Check(raw); v == nil || v.Path != "/0" {
			b.Fatal(v)
		}
	}
}

// BenchmarkCheckPlain is a call as most are.
func BenchmarkCheckPlain(b *testing.B) {
	benchmarkCheck(b, plainTool+`}`, `{"s":"/var/lib/pfar/state/notes/today.md","i":20,"b":true}`)
}
