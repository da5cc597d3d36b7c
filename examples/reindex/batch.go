package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/queue"
)

// Category is the input of a batch.
type Category struct {
	Name     string
	Products int
}

// Product is the payload of a subtask.
type Product struct {
	Number int
	Title  string
}

// handle registers the three functions of the batch. If that fails, Run returns the error.
func handle(q *queue.Client, url string) {
	requests := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 50}}
	_ = queue.HandleBatch(q, "reindex", queue.Batch[Category, Product, int]{
		// A shop would read the products after the cursor from its database.
		Split: func(ctx context.Context, c Category, to *queue.Split[Product]) error {
			last, _ := strconv.Atoi(to.Cursor())
			for n := last + 1; n <= c.Products; n++ {
				if err := to.Add(ctx, Product{n, fmt.Sprintf("%s model %d", c.Name, n)}, strconv.Itoa(n)); err != nil {
					return err
				}
			}
			return nil
		},
		// The output of a subtask is the number of terms in the title.
		Map: func(ctx context.Context, _ holdfast.Task, p Product) (terms int, err error) {
			request, err := http.NewRequestWithContext(ctx, "PUT", fmt.Sprint(url, "/", p.Number), strings.NewReader(p.Title))
			if err != nil {
				return 0, err
			}
			response, err := requests.Do(request)
			if err != nil {
				return 0, err
			}
			defer response.Body.Close() // an answer without a number is an error
			_, err = fmt.Fscan(response.Body, &terms)
			return terms, err
		},
		Reduce: func(ctx context.Context, items *queue.Results[Product, int]) (any, error) {
			terms := 0
			for item, err := range items.All(ctx) {
				if err != nil {
					return nil, err
				}
				terms += item.Output
			}
			return terms, nil
		},
	})
}
