package declaration

import (
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/block"
)

// extDropIns ends the name of the directory of a declaration's drop-ins: notion.hcl.d, as systemd.unit(5) has them.
const extDropIns = ".d"

// DropInsOf returns the declaration whose drop-ins a directory of this name holds.
func DropInsOf(name string) (declaration string, ok bool) {
	declaration, ok = strings.CutSuffix(name, extDropIns)
	return declaration, ok && IsDeclaration(declaration)
}

// override lays drop-ins over a declaration. It returns what is wrong with those that cannot be read at all.
func (d *serverFile) override(root *block.Node, with []Source, o Options) (diags hcl.Diagnostics) {
	if len(with) == 0 {
		return nil
	}
	var names []string
	for _, k := range d.launch.keys() {
		names = append(names, k.Name)
	}
	root.Lift(serverSection, names) // a drop-in has them in server or at the top, whatever the declaration has
	for _, one := range with {
		g := block.NewFile(one.File, one.Text, language(o.Servers))
		tree := tree(g, `Write the keys that it changes, such as label = "internal".`)
		if tree == nil {
			diags = append(diags, g.Finish()...)
			continue
		}
		tree.Lift(serverSection, names)
		if name, ok := tree.Index["name"]; ok {
			g.Problem(name.At, "Name in a drop-in", "A drop-in changes the server of its declaration, which has a name "+
				"already. Remove this line.")
			delete(tree.Index, "name")
			tree.Fields = slices.DeleteFunc(tree.Fields, func(f *block.Field) bool { return f == name })
		}
		d.File.Join(g)
		root.Override(tree)
	}
	return diags
}

// sourcesOf says which file gives which value.
func sourcesOf(root *block.Node, from []Source) []Origin {
	list := make([]Origin, len(from))
	for i, one := range from {
		list[i] = Origin{File: one.File, Keys: []string{}}
	}
	root.Leaves("", func(path string, f *block.Field) {
		i := slices.IndexFunc(list, func(o Origin) bool { return o.File == f.At.Filename })
		list[max(i, 0)].Keys = append(list[max(i, 0)].Keys, strings.TrimPrefix(path, serverSection+"."))
	})
	return list
}

// dropIns are the drop-ins in all folders: by the file name of the declaration, then by their own. Of two with one name
// the one in the first folder counts.
type dropIns map[string]map[string]dropIn

// dropIn is a file that changes a declaration.
type dropIn struct {
	folder Folder
	entry  string // below the folder
	masks  bool   // those of its name in other folders, and changes nothing
}

func (d dropIn) file() string { return path.Join(d.folder.Path, d.entry) }

// gather takes the drop-ins of a folder that comes after those that were gathered before.
func (all dropIns) gather(folder Folder, e fs.DirEntry) (diags hcl.Diagnostics) {
	declaration, ok := DropInsOf(e.Name())
	if !ok || !e.IsDir() && e.Type()&fs.ModeSymlink == 0 {
		return nil
	}
	if all[declaration] == nil {
		all[declaration] = map[string]dropIn{}
	}
	own := all[declaration]
	entries, err := fs.ReadDir(folder.FS, e.Name())
	if err != nil {
		own[""] = dropIn{folder: folder, entry: e.Name()} // reading it as a file says why nothing is known of them
		return nil
	}
	_, syntax := block.SplitName(declaration)
	for _, e := range entries {
		d := dropIn{folder: folder, entry: path.Join(declaration+extDropIns, e.Name())}
		if !IsDeclaration(e.Name()) {
			continue
		}
		if _, ext := block.SplitName(e.Name()); ext != syntax {
			diags = diags.Append(block.Caution(start(d.file()), "File not read",
				"A drop-in is in the syntax of its declaration, %s. Write it as a file whose name ends in "+
					"%s.", block.Quote(declaration), syntax))
			continue
		}
		first, taken := own[e.Name()]
		switch {
		case !taken:
			d.masks = folder.null(d.entry)
			own[e.Name()] = d
		case first.folder.empty(first.entry):
			first.masks = true
			own[e.Name()] = first
		}
	}
	return diags
}

// of returns the drop-ins of a declaration in the order in which they change it: that of their names, wherever they lie.
func (all dropIns) of(declaration string) (list []dropIn) {
	for _, name := range slices.Sorted(maps.Keys(all[declaration])) {
		if d := all[declaration][name]; !d.masks {
			list = append(list, d)
		}
	}
	return list
}

// orphans warns of drop-ins that no declaration has.
func (all dropIns) orphans(declared map[string]string) (diags hcl.Diagnostics) {
	for _, declaration := range slices.Sorted(maps.Keys(all)) {
		stem, _ := block.SplitName(declaration)
		file := path.Base(declared[stem])
		if list := all.of(declaration); len(list) > 0 && file != declaration {
			hint := "Name the directory after a declaration, such as notion.hcl.d, or remove it."
			if declared[stem] != "" {
				hint = "Rename the directory to " + block.Quote(file+extDropIns) + "."
			}
			diags = diags.Append(block.Caution(start(list[0].file()), "Drop-in without a declaration",
				"There is no %s for it to change. %s", block.Quote(declaration), hint))
		}
	}
	return diags
}

// start is where a diagnostic about a whole file points.
func start(file string) hcl.Range {
	return hcl.Range{Filename: file, Start: hcl.InitialPos, End: hcl.InitialPos}
}
