// The program of TestAGeneratedGoClientWorks. Its arguments are the URL of the API and the id of a dead task.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
)

func main() {
	log.SetFlags(0)
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url, dead string) error {
	client, err := NewClientWithResponses(url)
	if err != nil {
		return err
	}
	queue, limit, query, reason := "mail", int64(2), "queue:mail", "the target is back"
	task := func(tags ...string) NewTask {
		return NewTask{Type: "mail", Queue: &queue, Payload: map[string]string{"to": "ada"}, Tags: &tags}
	}
	var one, several EnqueueJSONRequestBody
	if err := one.FromNewTask(task()); err != nil {
		return err
	}
	if err := several.FromNewTasks1([]NewTask{task(), task("a:b")}); err != nil {
		return err
	}
	for _, tasks := range []EnqueueJSONRequestBody{one, several} {
		stored, err := client.EnqueueWithResponse(ctx, nil, tasks)
		if err != nil || stored.JSON201 == nil {
			return fmt.Errorf("enqueue: %s, %w", stored.Body, err)
		}
	}
	first, err := client.ListTasksWithResponse(ctx, &ListTasksParams{Q: &query, Limit: &limit})
	if err != nil || first.JSON200 == nil || first.JSON200.Next == nil || first.JSON200.Tasks[0].Tags[0] != "a:b" {
		return fmt.Errorf("the first page: %s, %w", first.Body, err)
	}
	second, err := client.ListTasksWithResponse(ctx, &ListTasksParams{Q: &query, Limit: &limit, Before: first.JSON200.Next})
	if err != nil || second.JSON200 == nil || len(second.JSON200.Tasks) != 1 || second.JSON200.Next != nil {
		return fmt.Errorf("the second page: %s, %w", second.Body, err)
	}
	retried, err := client.RetryTaskWithResponse(ctx, dead, nil, ReasonBody{Reason: &reason})
	if err != nil || retried.JSON200 == nil || retried.JSON200.State != "ready" {
		return fmt.Errorf("retry: %s, %w", retried.Body, err)
	}
	missing, err := client.GetTaskWithResponse(ctx, "999999")
	if problem := missing.ApplicationproblemJSONDefault; err != nil || problem == nil || problem.Code != "not_found" || problem.Status != 404 {
		return fmt.Errorf("a missing task: %s, %w", missing.Body, err)
	}
	return nil
}
