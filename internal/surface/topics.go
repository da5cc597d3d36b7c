package surface

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
)

// TopicPage is a page of the parts of topics.
type TopicPage struct {
	Topics []store.TopicUse `json:"topics"`
	// Next is the cursor of the next page, and null on the last page.
	Next *string `json:"next"`
}

// Topics reads a page of at most limit parts of topics, after the cursor of the page before. An empty cursor means the
// first page, and an empty queue all queues. It returns an ErrInvalid if no page has the cursor.
func Topics(ctx context.Context, b *app.Backend, queue, after string, limit int) (TopicPage, error) {
	var from store.TopicPart
	if after != "" {
		var err error
		if from, err = parseTopicCursor(after); err != nil {
			return TopicPage{}, err
		}
	}
	found, err := b.Store.ListTopics(ctx, queue, from, limit+1)
	if err != nil {
		return TopicPage{}, err
	}
	topics, next := pageOf(found, limit, func(u store.TopicUse) string { return topicCursor(u.TopicPart) })
	return TopicPage{topics, next}, nil
}

// topicCursor returns the cursor of a part of a topic: its subqueue, a slash and the topic. No subqueue has a slash.
func topicCursor(p store.TopicPart) string {
	return holdfast.Subqueue(p.Queue, p.Priority) + "/" + p.Topic
}

// parseTopicCursor is the inverse of topicCursor.
func parseTopicCursor(text string) (store.TopicPart, error) {
	subqueue, topic, found := strings.Cut(text, "/")
	p := store.TopicPart{Topic: topic}
	p.Queue, p.Priority = holdfast.SplitSubqueue(subqueue)
	if !found || p.Queue == "" || strings.Contains(p.Queue, ".") || holdfast.CheckTopic(topic) != nil {
		return p, fmt.Errorf("%w: %.120q is not the cursor of a page of topics", holdfast.ErrInvalid, text)
	}
	return p, nil
}

// WeightChange is a change of the weight of a topic.
type WeightChange struct {
	store.TopicWeight
	Before int `json:"before" doc:"The weight before the change."`
}

// SetTopicWeight changes the weight of a topic; see store.Topics.
func SetTopicWeight(ctx context.Context, b *app.Backend, by store.Actor, w store.TopicWeight) (WeightChange, error) {
	before, err := b.Store.SetTopicWeight(ctx, by, w.Topic, w.Weight)
	return WeightChange{TopicWeight: w, Before: before}, err
}
