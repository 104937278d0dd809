package transcript

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"
)

// examples are values of types whose JSON is not that of their fields.
var examples = []any{
	time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC), time.Minute, netip.MustParseAddr("192.0.2.1"), netip.MustParsePrefix("192.0.2.0/24"),
	json.RawMessage(`{"any":"thing"}`), []byte("bytes"),
}

// encode writes JSON in one line, the members of maps in their order.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // a message that cannot be sent is a fault of the test
	}
	return bytes.TrimSpace(b.Bytes())
}

// decode reads JSON, numbers as they are written.
func decode(b []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}

// contains reports whether a value has all that part has. A list has as many elements.
func contains(whole, part any) bool {
	switch p := part.(type) {
	case map[string]any:
		w, ok := whole.(map[string]any)
		for key, v := range p {
			has, there := w[key]
			ok = ok && there && contains(has, v)
		}
		return ok
	case []any:
		w, ok := whole.([]any)
		return ok && slices.EqualFunc(w, p, contains)
	}
	return reflect.DeepEqual(whole, part)
}

// extended adds to each object of a message that is of that type a member that no version knows. Maps and the documents
// of others stay: there each member counts.
func extended(typ reflect.Type, v any, such map[reflect.Type]reflect.Value) any {
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if _, ok := such[typ]; ok {
		return v
	}
	switch v := v.(type) {
	case map[string]any:
		m := map[string]any{}
		for name, e := range v {
			m[name] = extended(member(typ, name), e, such)
		}
		if typ.Kind() == reflect.Struct {
			m["member_of_a_later_version"] = map[string]any{"more": true}
		}
		return m
	case []any:
		l := make([]any, len(v))
		for i, e := range v {
			l[i] = extended(typ.Elem(), e, such)
		}
		return l
	}
	return v
}

// member is the type of a member of an object. Of one that the type does not have it is any.
func member(typ reflect.Type, name string) reflect.Type {
	switch typ.Kind() {
	case reflect.Map:
		return typ.Elem()
	case reflect.Struct:
		for _, f := range reflect.VisibleFields(typ) {
			if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); cmp.Or(tag, f.Name) == name {
				return f.Type
			}
		}
	}
	return reflect.TypeFor[any]()
}

// travels reports whether a field is in the JSON of its struct.
func travels(f reflect.StructField) bool {
	return (f.IsExported() || f.Anonymous) && f.Tag.Get("json") != "-"
}

// fill sets a value, and all that is in it, to something that JSON does not leave out.
func fill(v reflect.Value, such map[reflect.Type]reflect.Value, within []reflect.Type) {
	typ := v.Type()
	if example, ok := such[typ]; ok {
		v.Set(example)
		return
	}
	if slices.Contains(within, typ) { // it is in itself: once is enough
		return
	}
	within = append(within, typ)
	_, text := reflect.New(typ).Interface().(encoding.TextUnmarshaler)
	switch typ.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("text")
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(1)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(1.5)
	case reflect.Pointer:
		v.Set(reflect.New(typ.Elem()))
		fill(v.Elem(), such, within)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(typ, 1, 1))
		fill(v.Index(0), such, within)
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), such, within)
		}
	case reflect.Map:
		name, value := reflect.New(typ.Key()).Elem(), reflect.New(typ.Elem()).Elem()
		fill(name, such, within)
		fill(value, such, within)
		v.Set(reflect.MakeMap(typ))
		v.SetMapIndex(name, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if !text && travels(typ.Field(i)) {
				fill(v.Field(i), such, within)
			}
		}
	}
}
