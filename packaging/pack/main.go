// Command pack describes a package for nfpm: the files of make install and the linked modules in, configuration out.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

func main() {
	var p pack
	flag.StringVar(&p.Format, "format", "deb", "deb, rpm, apk or archlinux")
	flag.StringVar(&p.Arch, "arch", "amd64", "GOARCH of the programs")
	flag.StringVar(&p.Version, "version", "", "version of the package")
	flag.StringVar(&p.Compression, "compression", "xz", "of the package's files")
	flag.StringVar(&p.Root, "root", "", "directory that make install wrote")
	flag.StringVar(&p.Source, "source", ".", "directory of the repository")
	flag.Parse()
	if err := run(p); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

// pack is one package to make.
type pack struct {
	Format, Arch, Version, Compression, Root, Source string

	date time.Time
}

func run(p pack) error {
	epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("reading SOURCE_DATE_EPOCH: %w", err)
	}
	p.date = time.Unix(epoch, 0).UTC()
	modules, err := linked(p.Source, p.Arch)
	if err != nil {
		return err
	}
	if err := p.documents(modules); err != nil {
		return err
	}
	config, err := p.config(modules)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(filepath.Dir(p.Root), "nfpm.json"), config, 0o644)
}
