// Command crawler fetches all pages of three generated sites, each page once. Each site is a topic, so the pages of a
// large site do not delay those of a small one, and a limit per site keeps a site from too many requests. Site maps and
// front pages have a high priority. If a site answers 503, the page is fetched again when its Retry-After has passed.
package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/queue"
	"github.com/holdfastq/holdfast/store"
)

func main() {
	log.SetFlags(0)
	pages := flag.Int("pages", 400, "number of pages of the largest site, 50 to 900")
	rate := flag.Int("rate", 100, "maximum number of requests to a site in a second")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := demonstrate(ctx, *pages, *rate)
	stop()
	if err != nil {
		log.Fatal("crawler: ", err)
	}
}

// demonstrate crawls a generated web, and prints what its sites have seen.
func demonstrate(ctx context.Context, pages, rate int) error {
	if pages < 50 || pages > 900 {
		return fmt.Errorf("cannot fetch %d pages", pages)
	}
	if os.Getenv("DATABASE_URL") == "" { // a file for this demonstration only
		folder, err := os.MkdirTemp("", "crawler")
		if err != nil {
			return err
		}
		defer os.RemoveAll(folder)
		os.Setenv("DATABASE_URL", "sqlite:"+filepath.Join(folder, "crawler.db"))
	}
	cfg, err := configs.Load(configs.Options{Env: os.Environ()})
	if err != nil {
		return err
	}
	cfg.Worker.Concurrency = 8 // too few for the large site alone
	if _, err := app.Migrate(ctx, cfg, nil); err != nil {
		return err
	}
	backend, err := app.Open(ctx, cfg, nil)
	if err != nil {
		return err
	}
	defer backend.Close()
	q, err := queue.Over(backend, queue.NoSignals())
	if err != nil {
		return err
	}
	defer q.Close()
	sites := newWeb(pages)
	server := httptest.NewServer(sites) // on this machine
	defer server.Close()
	proxy := &url.URL{Scheme: "http", Host: server.Listener.Addr().String()}
	// The type has a queue of its own, so that this program takes no other tasks.
	c := crawler{&http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy), MaxIdleConnsPerHost: 50}}}
	if err := queue.Handle(q, pageType, c.handle, queue.Queue("crawler")); err != nil {
		return err
	}
	// holdfast limit set --type page.fetch --per key --rate 100/s
	perSite := store.LimitChange{Scope: store.Scope{Subject: store.Subject{Type: pageType}, Per: store.PerKey}}
	perSite.Rate = &store.Rate{Count: rate, Per: time.Second}
	if _, err := backend.SetLimit(ctx, store.Actor{Name: "crawler", Surface: store.Library}, perSite); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	go func() { cancel(q.Run(ctx)) }()
	u := &url.URL{Scheme: "http", Host: "shop.example", Path: sitemap}
	first := page{u.String(), strings.ToLower(rand.Text()[:8])}
	if _, err := q.Enqueue(ctx, pageType, first, first.options(u)...); err != nil {
		return err
	}
	if err := await(ctx, backend, first.Run); err != nil {
		return err
	}
	sites.report()
	return nil
}

// await waits until all pages of a run are done or dead, or until the worker has ended. A list is not a snapshot: it may
// miss the pages that are stored while it is read, together with the end of the page that links to them. So the run is
// complete if two lists in a row are empty.
func await(ctx context.Context, backend *app.Backend, run string) error {
	open := store.Filter{Tags: []string{run}, States: []holdfast.State{holdfast.Ready, holdfast.Running}, Limit: 1}
	for empty := 0; empty < 2; {
		found, err := backend.Store.List(ctx, open)
		if ctx.Err() != nil {
			return fmt.Errorf("the worker has ended: %w", context.Cause(ctx))
		}
		if err != nil {
			return err
		}
		empty++
		if len(found.Tasks) > 0 {
			empty = 0
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil
}
