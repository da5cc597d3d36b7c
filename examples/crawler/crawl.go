package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/queue"
)

// pageType is the type of the tasks, and sitemap the path of the page that lists the others.
const (
	pageType = "page.fetch"
	sitemap  = "/sitemap.xml"
)

// page is the payload of a task.
type page struct {
	URL string `json:"url"`
	Run string `json:"run"` // another run on the same servers fetches the pages again
}

// options returns the options of the task of a page.
func (p page) options(u *url.URL) []queue.TaskOption {
	options := []queue.TaskOption{
		queue.Unique(p.Run + "/" + p.URL), // once, however many pages link to it
		queue.Topic(u.Host),               // the sites share the executors
		queue.Key(u.Host),                 // the limit is per key
		queue.Tags(p.Run),
	}
	if u.Path == "/" || u.Path == sitemap {
		options = append(options, queue.Priority(holdfast.PriorityHigh))
	}
	return options
}

// crawler fetches pages, and stores a task for each of their links.
type crawler struct{ requests *http.Client }

// link matches a link of a page.
var link = regexp.MustCompile(`<a href="([^"]+)">`)

// handle handles the task of a page. If the site is busy, the task runs again when the site says.
func (c crawler) handle(ctx context.Context, _ holdfast.Task, p page) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL, nil)
	if err != nil {
		return holdfast.Permanent(err)
	}
	response, err := c.requests.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		err := errors.New(response.Status)
		if seconds, wrong := strconv.Atoi(response.Header.Get("Retry-After")); wrong == nil {
			return holdfast.RetryAfter(time.Duration(seconds)*time.Second, err)
		}
		return err
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return err
	}
	for _, match := range link.FindAllSubmatch(text, -1) {
		u, err := request.URL.Parse(string(match[1]))
		if err != nil {
			continue // a page may have wrong links
		}
		// The tasks of the links are stored together with the success of this one, so none is lost.
		found := page{u.String(), p.Run}
		if err := queue.Next(ctx, pageType, found, found.options(u)...); err != nil {
			return err
		}
	}
	return nil
}
