package image

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
)

// tools are the programs that every image needs, and the Debian packages that have them.
var tools = map[string]string{"debootstrap": "debootstrap"}

var installing sync.Mutex

// Install brings programs (name -> Debian package) and what an image needs onto this machine, and says which it
// brought. It needs root and apt.
func Install(ctx context.Context, programs map[string]string) ([]string, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("an image is made as root, and this is uid %d", os.Geteuid())
	}
	installing.Lock() // apt-get does not wait for another
	defer installing.Unlock()
	list := missing(programs)
	if len(list) == 0 {
		return nil, nil
	}
	names := strings.Join(list, " ")
	if _, err := exec.LookPath("apt-get"); err != nil {
		return nil, fmt.Errorf("this machine lacks %s, and has no apt-get to install them", names)
	}
	if _, err := Run(ctx, "/", "apt-get", "update", "-q"); err != nil {
		return nil, fmt.Errorf("installing %s: %w", names, err)
	}
	if _, err := Run(ctx, "/", "apt-get", append([]string{"install", "-q", "-y", "--no-install-recommends"}, list...)...); err != nil {
		return nil, fmt.Errorf("installing %s: %w", names, err)
	}
	return list, nil
}

// missing returns the packages whose programs are not here.
func missing(programs map[string]string) []string {
	all := maps.Clone(tools)
	maps.Copy(all, programs)
	var list []string
	for _, program := range slices.Sorted(maps.Keys(all)) {
		if _, err := exec.LookPath(program); err != nil {
			list = append(list, all[program])
		}
	}
	return list
}
