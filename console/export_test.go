package console

import (
	"context"
	"html/template"
	"maps"
	"slices"
	"time"

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

// ParseAll parses every template, and returns the names of the pages.
func (c *Console) ParseAll() []string {
	for _, parse := range c.templates {
		parse()
	}
	return slices.Collect(maps.Keys(c.templates))
}

// CountParsed returns a function that returns how many pages were parsed after this call. No request may be in progress.
func (c *Console) CountParsed() func() int {
	common, n := c.common, 0
	c.common = func() *template.Template {
		n++
		return common()
	}
	return func() int { return n }
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

// Charts returns the drawings of a queue.
func (c *Console) Charts(ctx context.Context, now time.Time, queue, name string) (string, error) {
	view, err := c.charts(ctx, now, queue, name)
	return string(view.Charts), err
}

// ChartSets returns the number of queues whose charts are kept.
func (c *Console) ChartSets() int { return len(c.chartCache.sets) }

// SetBodyPause sets how long a client may send nothing while its body is not complete. No request may be in progress.
func (c *Console) SetBodyPause(pause time.Duration) { c.bodyPause = pause }
