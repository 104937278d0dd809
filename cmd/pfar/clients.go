package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/pfar/pfar/generator/declaration"
)

// declaredClients is the folder of clients, read.
type declaredClients struct {
	dir string
	declaration.ClientSet
}

// declares returns the file that declares a client, sound or not; "" for none.
func (d declaredClients) declares(name string) string {
	for _, one := range d.Clients {
		if one.Name == name {
			return one.File
		}
	}
	for _, b := range d.Broken {
		if b.Name == name {
			return b.File
		}
	}
	return ""
}

// taken returns the file that keeps a new client from this name: one that declares it, or is called like it.
func (d declaredClients) taken(name string) string {
	if path := d.declares(name); path != "" {
		return path
	}
	for _, ext := range []string{".hcl", ".toml"} {
		path := filepath.Join(d.dir, name+ext)
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return path
		}
	}
	return ""
}

func (d declaredClients) find(name string) (declaration.Client, error) {
	for _, one := range d.Clients {
		if one.Name == name {
			return one, nil
		}
	}
	for _, b := range d.Broken {
		if b.Name == name {
			return declaration.Client{}, fail(exitFailed, "the declaration of %q, %s, has an error", name, b.File).withHint("pfar check")
		}
	}
	return declaration.Client{}, noClient(name)
}

// clients reads the folder that the running pfard reads, or else the default one.
func (c *pfar) clients(ctx context.Context) (declaredClients, error) {
	dir := c.dirs.Clients()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if report, err := c.report(ctx); err == nil && report.Clients != "" {
		dir = report.Clients
	}
	if _, err := os.ReadDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // what cannot be read is not empty
		return declaredClients{}, fmt.Errorf("reading the declarations of clients: %w", err)
	}
	return declaredClients{dir, declaration.LoadClients(os.DirFS(dir), dir, declaration.ClientOptions{})}, nil
}

func (c *pfar) offeredClients(ctx context.Context) ([]string, error) {
	clients, err := c.clients(ctx)
	var names []string
	for _, one := range clients.Clients {
		names = append(names, completion(one.Name, one.Description))
	}
	return names, err
}
