package main

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// web is a generated web of three sites. Its server is the proxy through which the crawler reaches all of them.
type web struct {
	mu    sync.Mutex
	sites []*site // the largest one first
}

// site has a site map, a front page and numbered pages. If it is large, every tenth page first answers with 503.
type site struct {
	host    string
	pages   int
	refused map[string]time.Time // the time that Retry-After has named, by path
	early   int                  // requests before that time
	fetched []string             // the paths that were answered, in order
	at      []time.Time          // when
}

func newWeb(pages int) *web {
	add := func(host string, pages int) *site {
		return &site{host: host, pages: pages, refused: map[string]time.Time{}}
	}
	return &web{sites: []*site{add("shop.example", pages), add("blog.example", 20), add("docs.example", 20)}}
}

// ServeHTTP answers with the links of a page.
func (w *web) ServeHTTP(response http.ResponseWriter, r *http.Request) {
	time.Sleep(50 * time.Millisecond) // as a real page would need
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, s := range w.sites {
		switch {
		case s.host != r.Host:
		case s.answers(r.URL.Path):
			for _, link := range s.links(r.URL.Path, w.sites[i+1:]) {
				fmt.Fprintf(response, "<a href=%q>\n", link)
			}
		default:
			response.Header().Set("Retry-After", "1")
			response.WriteHeader(http.StatusServiceUnavailable)
		}
	}
}

// answers decides whether to answer a request.
func (s *site) answers(path string) bool {
	now := time.Now()
	until, known := s.refused[path]
	if !known && s.pages > 20 && strings.HasSuffix(path, "3") {
		s.refused[path] = now.Add(time.Second)
		return false
	}
	if now.Before(until) {
		s.early++
	}
	s.fetched, s.at = append(s.fetched, path), append(s.at, now)
	return true
}

// links returns the links of a page. Page 50 links to other sites.
func (s *site) links(path string, others []*site) (links []string) {
	if path == sitemap {
		for i := range s.pages {
			links = append(links, fmt.Sprint("/page/", i+1))
		}
		return append(links, "/")
	}
	n, _ := strconv.Atoi(strings.TrimPrefix(path, "/page/")) // the front page is page 0
	links = []string{"/", sitemap, fmt.Sprint("/page/", n%s.pages+1)}
	for _, other := range others {
		if n == 50 {
			links = append(links, "http://"+other.host+"/")
		}
	}
	return links
}

// report prints what each site has seen.
func (w *web) report() {
	w.mu.Lock()
	defer w.mu.Unlock()
	large := w.sites[0]
	for _, s := range w.sites {
		pages := len(slices.Compact(slices.Sorted(slices.Values(s.fetched))))
		end := s.at[len(s.at)-1]
		left := slices.DeleteFunc(slices.Clone(large.at), func(at time.Time) bool { return !at.After(end) })
		fmt.Printf("%s: %d pages, %d of them twice; the front page was number %d\n",
			s.host, pages, len(s.fetched)-pages, slices.Index(s.fetched, "/")+1)
		fmt.Printf("  %d requests in %.1f s; 503 for %d of them, %d came before Retry-After\n",
			len(s.fetched)+len(s.refused), end.Sub(s.at[0]).Seconds(), len(s.refused), s.early)
		fmt.Printf("  complete when %s had %d pages left\n", large.host, len(left))
	}
}
