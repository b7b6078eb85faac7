// Writes records, reads them back while they are written, and checks the checksums of their batches, over one HTTP/2
// connection. Go 1.24 or later, its standard library only.
//
//	go run . [URL [TOPIC]]                                           default: http://127.0.0.1:9701 flights
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"
)

// Record is a record as JSON has it.
type Record struct {
	Offset int64           `json:"offset"`
	Key    string          `json:"key"`
	Value  json.RawMessage `json:"value"`
}

type produced struct {
	BaseOffset int64 `json:"baseOffset"`
	LastOffset int64 `json:"lastOffset"`
}

func main() {
	url, topic := "http://127.0.0.1:9701", "flights"
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	if len(os.Args) > 2 {
		topic = os.Args[2]
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, NewBroker(url), "/v1/namespaces/default/topics/"+topic+"/partitions/0/records"); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", url, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, broker *Broker, records string) error {
	_, end, err := broker.Read(ctx, records+"?offset=latest", "application/json")
	if err != nil {
		return err
	}
	const count = 3
	watched := make(chan error, 1)
	go func() { watched <- watch(ctx, broker, records, end, count) }()

	var body bytes.Buffer
	for _, flight := range [count]int{1545, 1714, 1141} {
		fmt.Fprintf(&body, `{"key": "UA%d", "value": {"flight": %d}, "headers": {"source": "go"}}`+"\n", flight, flight)
	}
	written, err := produce(ctx, broker, records, body.Bytes())
	if err != nil {
		return err
	}
	fmt.Printf("wrote %d to %d\n", written.BaseOffset, written.LastOffset)
	if err := <-watched; err != nil {
		return err
	}
	if err := fetch(ctx, broker, records, written.BaseOffset, written.LastOffset+1); err != nil {
		return err
	}
	fmt.Printf("protocol: %s\n", broker.Protocol)
	return nil
}

// produce writes a record a line, all of them or none.
func produce(ctx context.Context, broker *Broker, records string, lines []byte) (written produced, err error) {
	response, err := broker.Open(ctx, http.MethodPost, records, "application/x-ndjson", lines)
	if err != nil {
		return written, err
	}
	defer response.Body.Close()
	return written, json.NewDecoder(response.Body).Decode(&written)
}

// watch shows the next count records from offset as they come. Where the stream breaks off it goes on behind the last.
func watch(ctx context.Context, broker *Broker, records string, offset int64, count int) error {
	for count > 0 {
		path := fmt.Sprintf("%s?watch=true&offset=%d&maxRecords=%d&valueFormat=json", records, offset, count)
		response, err := broker.Open(ctx, http.MethodGet, path, "application/x-ndjson", nil)
		if err != nil {
			return err
		}
		lines := bufio.NewReader(response.Body)
		for count > 0 {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				fmt.Fprintf(os.Stderr, "the watch broke off, going on from offset %d: %v\n", offset, err)
				break
			}
			if len(line) == 1 {
				continue // a heartbeat
			}
			var record Record
			if err := json.Unmarshal(line, &record); err != nil {
				return err
			}
			offset, count = record.Offset+1, count-1
			fmt.Printf("watched %d: %s %s\n", record.Offset, record.Key, record.Value)
		}
		response.Body.Close()
	}
	return nil
}

// fetch reads whole batches from offset to end, as they stand in the log.
func fetch(ctx context.Context, broker *Broker, records string, offset, end int64) error {
	for offset < end {
		path := fmt.Sprintf("%s?offset=%d&maxWaitMs=1000", records, offset)
		data, _, err := broker.Read(ctx, path, "application/vnd.headrace.batch")
		if err != nil {
			return err
		}
		for len(data) > 0 {
			var batch *Batch
			if batch, data, err = ParseBatch(data); err != nil {
				return err
			}
			fmt.Printf("fetched a batch of %d records from offset %d, leader epoch %d: both checksums are right\n",
				batch.RecordCount, batch.BaseOffset, batch.LeaderEpoch)
			offset = batch.NextOffset()
		}
	}
	return nil
}
