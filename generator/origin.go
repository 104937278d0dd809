package generator

import "github.com/pfar/pfar/policies/gate"

// origin is the package that a server's program belongs to. The zero value is not known.
type origin struct {
	pkg   string   // as policies name it
	doubt string   // why it is not certain, for a sentence that begins "but"; "": it is
	rests []string // the files and folders of the host that this is certain by, and the links on the way
}

// uncertain is an origin that the program only claims.
func uncertain(pkg, why string) origin { return origin{pkg: pkg, doubt: why} }

// certain reports whether the package managers' own records say so.
func (o origin) certain() bool { return o.pkg != "" && o.doubt == "" }

// declare tells the gate of the package.
func (o origin) declare(d *gate.Declared) {
	switch {
	case o.certain():
		d.Packages, d.Rests = []string{o.pkg}, o.rests
	case o.pkg != "":
		d.Doubt = &gate.Doubt{Package: o.pkg, Why: o.doubt}
	}
}
