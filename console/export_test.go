package console

import (
	"maps"
	"slices"

	"github.com/holdfastq/holdfast/internal/access"
)

// Policy is the Content-Security-Policy of every answer.
const Policy = policy

// MaxStreams is the maximum number of live pages.
const MaxStreams = maxStreams

// Page is a page, for tests.
type Page struct {
	Name, Path string
	Role       access.Role
	Live       bool
}

// Pages returns the table of pages.
func (c *Console) Pages() []Page {
	var all []Page
	for _, p := range c.pages {
		all = append(all, Page{p.name, p.path, p.role, p.live > 0})
	}
	return all
}

// Actions returns the names of the forms.
func Actions() []string { return slices.Sorted(maps.Keys(actions)) }

// Viewers returns the number of open streams.
func (c *Console) Viewers() int {
	c.live.mu.Lock()
	defer c.live.mu.Unlock()
	return c.live.viewers
}

// Assets returns the URLs of the files that pages load.
func (c *Console) Assets() (urls []string) {
	for name, file := range c.assets {
		urls = append(urls, c.o.Prefix+"/assets/"+name+"?"+file.tag)
	}
	return urls
}
